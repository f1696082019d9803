"""The Python front door: the command line's options as keywords, and the same results.

In: paths and options. Out: a `Store`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from tokpress.config import (
    BuildConfig,
    CheckConfig,
    LossChoice,
    OverlongChoice,
    ReadConfig,
    Resources,
    SpecialTokenPolicy,
    SplitConfig,
    StoreConfig,
    TemplateConfig,
    TokenizerConfig,
    parse_size,
)
from tokpress.errors import UsageError
from tokpress.run.coordinator import build_store, make_job
from tokpress.run.job import Prepared
from tokpress.run.progress import Reporter
from tokpress.store.reader import Store, open_store

if TYPE_CHECKING:
    from tokpress.run.projection import Projection

PathLike = str | os.PathLike[str]


class BuildOptions(TypedDict, total=False):
    """What `tokpress build` takes as flags, under the same names; sizes in bytes or like "4GB". See its `--help`."""

    format: str | None
    text_field: str
    separator: str | None
    max_doc_bytes: int | str
    drop_empty: bool
    limit: int | None
    keep: Sequence[str]
    prompt_field: str | None
    completion_field: str | None
    prompt_separator: str
    messages_field: str | None
    tools_field: str
    chat_template: PathLike | None
    date: str | None
    template: PathLike | None
    loss: LossChoice | None
    keep_empty_loss: bool
    max_length: int | None
    overlong: OverlongChoice
    val_fraction: float | None
    val_docs: int | None
    split_field: str | None
    val_inputs: PathLike | Sequence[PathLike]
    split_key: str | None
    split_seed: int
    engine: str
    special_tokens: SpecialTokenPolicy | None
    pattern: str | None
    added_tokens: Mapping[str, int]
    bos: bool | None
    eos: bool | None
    bos_token: str | None
    eos_token: str | None
    audit_rate: float
    max_rejects: str | int
    on_bad_record: Literal["skip", "stop"]
    unit_size: int | str | None
    shard_size: int | str
    workers: int | None
    memory: int | str | None
    batch_bytes: int | str | None
    doc_timeout: float
    pin: Literal["none", "cores", "numa"]
    profile: str | None


_SECTIONS = {
    "read": ("format", "text_field", "separator", "max_doc_bytes", "drop_empty", "limit", "keep"),
    "template": (
        *(
            "prompt_field",
            "completion_field",
            "prompt_separator",
            "messages_field",
            "tools_field",
            "chat_template",
            "date",
        ),
        *("template", "loss", "keep_empty_loss", "max_length", "overlong"),
    ),
    "split": ("val_fraction", "val_docs", "split_field", "val_inputs", "split_key", "split_seed"),
    "tokenizer": ("engine", "special_tokens", "pattern", "added_tokens", "bos", "eos", "bos_token", "eos_token"),
    "check": ("audit_rate", "max_rejects"),
    "store": ("unit_bytes", "shard_bytes"),
    "resources": ("workers", "memory_bytes", "batch_bytes", "doc_timeout", "pin", "profile"),
}
_SIZES = {"max_doc_bytes": "max_doc_bytes", "unit_size": "unit_bytes", "shard_size": "shard_bytes"}
_SIZES |= {"memory": "memory_bytes", "batch_bytes": "batch_bytes"}


def build(
    inputs: PathLike | Sequence[PathLike],
    *,
    tokenizer: PathLike,
    out: PathLike,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Unpack[BuildOptions],
) -> Store:
    """Tokenize `inputs` into a store at `out`; called again, it goes on where it was stopped."""
    return build_store(as_list(inputs), out, build_config(tokenizer, options), overwrite=overwrite, reporter=reporter)


def dry_run(
    inputs: PathLike | Sequence[PathLike], *, tokenizer: PathLike, out: PathLike, **options: Unpack[BuildOptions]
) -> tuple[Prepared, Projection]:
    """What `build` would take: time, disk and memory, from a small piece of the inputs."""
    from tokpress.run.projection import project

    return project(make_job(as_list(inputs), out, build_config(tokenizer, options)))


def open(path: PathLike, split: str = "train") -> Store:  # noqa: A001 - called as tokpress.open
    """A finished store, memory-mapped."""
    return open_store(path, split)


def build_config(tokenizer: PathLike, options: BuildOptions) -> BuildConfig:
    """Flat options as the frozen records that the rooms take; what is left out has its default there."""
    values: dict[str, object] = dict(options)
    for size, name in _SIZES.items():
        if size in values:
            value = values.pop(size)
            values[name] = None if value is None else parse_size(value)  # type: ignore[arg-type]
    if values.pop("on_bad_record", "skip") == "stop":
        values["max_rejects"] = "0"
    if "max_rejects" in values:
        values["max_rejects"] = str(values["max_rejects"])
    if "keep" in values:
        values["keep"] = tuple(options["keep"])
    if "val_inputs" in values:
        values["val_inputs"] = tuple(os.fspath(path) for path in as_list(options["val_inputs"] or ()))
    for name in ("chat_template", "template"):
        if values.get(name) is not None:
            values[name] = _read_template(name, options[name])  # type: ignore[literal-required]
    for name in ("special_tokens", "bos", "eos"):
        if values.get(name) is None:  # a chat template writes special tokens itself, BOS and EOS among them
            values.pop(name, None)
            if values.get("messages_field") is not None:
                values[name] = "parse" if name == "special_tokens" else False
    if "added_tokens" in values:
        values["added_tokens"] = dict(options["added_tokens"])
    sections = {
        section: {name: values.pop(name) for name in names if name in values} for section, names in _SECTIONS.items()
    }
    if values:
        raise TypeError(f"tokpress.build got an unknown option {next(iter(values))!r}")
    return BuildConfig(
        tokenizer=TokenizerConfig(spec=os.fspath(tokenizer), **sections["tokenizer"]),  # type: ignore[arg-type]
        read=ReadConfig(**sections["read"]),  # type: ignore[arg-type]
        template=TemplateConfig(**sections["template"]),  # type: ignore[arg-type]
        split=SplitConfig(**sections["split"]),  # type: ignore[arg-type]
        store=StoreConfig(**sections["store"]),  # type: ignore[arg-type]
        check=CheckConfig(**sections["check"]),  # type: ignore[arg-type]
        resources=Resources(**sections["resources"]),  # type: ignore[arg-type]
    )


def _read_template(option: str, path: PathLike) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--{option.replace('_', '-')} {os.fspath(path)} cannot be read: {error}. Check the path."
        ) from error


def as_list(inputs: PathLike | Sequence[PathLike]) -> list[PathLike]:
    return [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
