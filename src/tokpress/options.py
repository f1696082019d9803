"""The options of a build as keywords, as the frozen records that the packages take, and as a plan stores them.

In: what `tokpress.build`, `LiveDataset` and the command line were given, or what a plan holds. Out: a `BuildConfig`, and
what of it changes the output. All of it is derived from the declarations in `tokpress.config`. Only the typed dictionaries
are written out, for type checkers; a test proves them equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from tokpress.arguments import did_you_mean
from tokpress.config import (
    BadRecordChoice,
    BuildConfig,
    LossChoice,
    OverlongChoice,
    PinChoice,
    ReceiptChoice,
)
from tokpress.declare import Declared, declared, sections
from tokpress.errors import StoreError, UsageError
from tokpress.records import SpecialTokenPolicy
from tokpress.sizes import parse_size

PathLike = str | os.PathLike[str]

SECTIONS = sections(BuildConfig)
OPTIONS = declared(BuildConfig)


class LiveOptions(TypedDict, total=False):
    """Those options of `tokpress build` that say which tokens there are, under the same names."""

    dataset: str | None
    split: str | None
    format: str | None
    text_field: str
    separator: str | None
    max_doc_bytes: int | str
    engine: str
    special_tokens: SpecialTokenPolicy | None
    bos: bool | None
    eos: bool | None
    bos_token: str | None
    eos_token: str | None
    pattern: str | None
    added_tokens: Mapping[str, int]
    audit_rate: float
    max_rejects: str | int
    on_bad_record: BadRecordChoice
    drop_empty: bool
    limit: int | None


class BuildOptions(LiveOptions, total=False):
    """What `tokpress build` takes as flags, under the same names; sizes in bytes or like "4GB"."""

    prompt_field: str | None
    completion_field: str | None
    prompt_separator: str
    messages_field: str | None
    tools_field: str
    chat_template: PathLike | None
    date: str | None
    template: PathLike | None
    loss: LossChoice | None
    per_turn: bool
    mask_thinking: bool
    mask_tool_calls: bool
    keep_empty_loss: bool
    max_length: int | None
    overlong: OverlongChoice
    val_fraction: float | None
    val_docs: int | None
    split_field: str | None
    val_inputs: PathLike | Sequence[PathLike]
    split_key: str | None
    split_seed: int
    check_receipts: ReceiptChoice
    workers: int | None
    memory: int | str | None
    batch_bytes: int | str | None
    doc_timeout: float
    pin: PinChoice
    profile: PathLike | None
    keep: Sequence[str]
    unit_size: int | str | None
    shard_size: int | str


def build_config(tokenizer: PathLike, options: BuildOptions) -> BuildConfig:
    """Keywords as the frozen records that the packages take; what is left out, or None, has its default."""
    check_names("tokpress.build", options, OPTIONS)
    given = {name: value for name, value in options.items() if value is not None}
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    values["tokenizer"]["spec"] = os.fspath(tokenizer)
    for option in OPTIONS:
        if option.name in given:
            values[option.section][option.field] = _converted(option, given[option.name])
        elif option.of_chats is not None and "messages_field" in given:
            values[option.section][option.field] = option.of_chats  # a chat template writes special tokens itself
    made: dict[str, Any] = {name: struct(**values[name]) for name, (struct, _) in SECTIONS.items()}
    return BuildConfig(**made)


def check_names(function: str, given: Iterable[str], options: Iterable[Declared]) -> None:
    """Raises TypeError for a keyword that is no option."""
    known = [option.name for option in options]
    for name in given:
        if name not in known:
            raise TypeError(f"{function} got an unknown option {name!r}.{did_you_mean(name, known)}")


def check_bounds(config: BuildConfig) -> None:
    """Raises UsageError for a number that is too small or too large."""
    for option in OPTIONS:
        value = getattr(getattr(config, option.section), option.field)
        least, most = option.at_least, option.at_most
        if value is None or least is None:
            continue
        if most is not None and not least <= value <= most:
            raise UsageError(f"{option.shown} is {value}, but must be between {least} and {most}.")
        if not value >= least:
            raise UsageError(f"{option.shown} is {value}, but must be at least {least}. Leave it out for the default.")


def output_options(
    config: BuildConfig, bos_id: int | None, eos_id: int | None, *, live: bool = False
) -> dict[str, Any]:
    """Every option that changes what is written, as a plan stores it; with `live`, those among them that it takes."""
    stored: dict[str, Any] = {}
    for section, (_, how) in SECTIONS.items():
        part = getattr(config, section)
        values = {}
        for option in _stored_in(section):
            value = getattr(part, option.field)
            if (option.live or not live) and (option.output == "always" or value != option.default):
                values[option.field] = value
        if not how.nested:
            stored |= values
        elif part.is_used:
            stored[section] = values
        if section == "tokenizer":
            stored |= {"bos_id": bos_id, "eos_id": eos_id}
    as_read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(stored))  # a list for a tuple
    return as_read


def stored_config(stored: Mapping[str, Any]) -> BuildConfig:
    """What `output_options` gave, typed again; what a plan does not hold has its default, and the tokenizer no name."""
    values: dict[str, dict[str, Any]] = {"tokenizer": {"spec": ""}}
    for section, (_, how) in SECTIONS.items():
        found = stored.get(section, {}) if how.nested else stored
        held = {option.field: found[option.field] for option in _stored_in(section) if option.field in found}
        values[section] = values.get(section, {}) | held
    try:
        return msgspec.convert(values, BuildConfig)
    except msgspec.ValidationError as error:
        raise StoreError(f"the plan has an option that no build would write: {error}. Build the store again.") from None


def _stored_in(section: str) -> list[Declared]:
    return [option for option in OPTIONS if option.section == section and option.stored]


def _converted(option: Declared, value: Any) -> Any:
    """A keyword's value as the field holds it."""
    kind = option.kind
    if kind == "size":
        return parse_size(value)
    if kind == "share":
        return str(value)
    if kind == "path":
        return os.fspath(value)
    if kind == "file":
        return _text_of(option, value)
    if kind == "fields":
        return tuple(field.strip() for field in value.split(",")) if isinstance(value, str) else tuple(value)
    if kind == "paths":
        return tuple(os.fspath(path) for path in as_list(value))
    if kind == "tokens":
        return dict(value)
    return value


def _text_of(option: Declared, path: PathLike) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option.shown} {os.fspath(path)} cannot be read: {error}. Check the path.") from error


def as_list(inputs: PathLike | Sequence[PathLike]) -> list[PathLike]:
    return [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
