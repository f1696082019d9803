"""`--dataset NAME[:CONFIG][@REVISION]` and `--split`: a dataset of the Hub -> its files, and the field that holds the text.

In: the name of a preset or any id on the Hub. Out: the files of one config and split, pinned to the commit that the revision
is now, as inputs like any others, and how to read them. A repository is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from tokpress.arguments import did_you_mean
from tokpress.config import ReadConfig
from tokpress.errors import InputError, UsageError
from tokpress.records import Input
from tokpress.sources.base import open_reader
from tokpress.sources.files import Argument, describe_found, discover
from tokpress.sources.hub_layout import TRAIN, Splits, configs_of, data_files, default_config, splits_by_name
from tokpress.sources.presets import PRESETS, TEXT, Preset
from tokpress.sources.remote import Found, FoundFiles, forget_connections, found_in
from tokpress.storage.hub import HubDataset, HubInfo, resolve

_OBVIOUS = (TEXT, "content")  # names of the one field that is meant, if it holds text
_LOOKED_AT = 20  # records, to see what their fields hold
_LOOK_BYTES = 64 * 1024
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class DatasetName:
    """What `NAME[:CONFIG][@REVISION]` says."""

    name: str
    config: str | None
    revision: str | None

    def __str__(self) -> str:
        return self.name + (f":{self.config}" if self.config else "") + (f"@{self.revision}" if self.revision else "")


def parse_name(text: str) -> DatasetName:
    name, _, revision = text.strip().removeprefix("hf://datasets/").partition("@")
    name, colon, config = name.partition(":")
    if name not in PRESETS and (name.count("/") != 1 or not all(name.split("/"))):
        raise UsageError(
            f"--dataset {text!r} is neither the name of a known dataset nor an id on the Hub like ORG/NAME."
            f"{did_you_mean(name, PRESETS)} Known ones: tokpress datasets"
        )
    if colon and not config:
        raise UsageError(f"--dataset {text!r}: no config is named after the colon. Write {name}:CONFIG, or {name}.")
    return DatasetName(name, config or None, revision or None)


def use_dataset(
    arguments: Sequence[Argument], read: ReadConfig, *, has_template: bool = False
) -> tuple[Sequence[Argument], ReadConfig]:
    """The arguments with the dataset's files, and how to read them: with the field that holds the text, if none was named
    and no template says what is read."""
    if read.dataset is None:
        if read.split is not None:
            raise UsageError("--split names a split of a dataset on the Hub. Give it together with --dataset.")
        return arguments, read
    wanted = parse_name(read.dataset)
    forget_connections()
    preset = PRESETS.get(wanted.name)
    info = resolve(preset.repo if preset else wanted.name, wanted.revision)
    files = (preset and _of_preset(preset, info.dataset, wanted, read.split)) or _of_repository(
        info, wanted, read.split
    )
    if not has_template and read.text_field == TEXT:
        field = preset.text_field if preset else _text_field(str(wanted), files, read)
        read = msgspec.structs.replace(read, text_field=field)
    return [*arguments, *files], read


def _of_preset(preset: Preset, dataset: HubDataset, wanted: DatasetName, split: str | None) -> list[Argument]:
    """Nothing, where the table has no such config or split, or the repository no such files."""
    pattern = preset.pattern(wanted.config, split or TRAIN)
    found = found_in(dataset, pattern) if pattern else []
    if not found or not preset.lists_addresses:
        return [FoundFiles(str(wanted), tuple(found))] if found else []
    listed = b"\n".join(
        bytes(dataset.read_range(item.path.removeprefix(f"{dataset.url}/"), 0, item.stat.size)) for item in found
    )
    return [line.strip() for line in listed.decode().splitlines() if line.strip().startswith(("https://", "http://"))]


def _of_repository(info: HubInfo, wanted: DatasetName, split: str | None) -> list[Argument]:
    names = dict(info.dataset.list_stats())
    config, splits = _config(info, wanted, list(names))
    chosen = split or (TRAIN if TRAIN in splits or len(splits) != 1 else next(iter(splits)))
    if chosen not in splits:
        have = ", ".join(sorted(splits))
        what = f"config {config!r} of {wanted}" if config else str(wanted)
        raise UsageError(f"{what} has no split {chosen!r}. Choose one with --split: {have}")
    patterns = splits[chosen]
    listed = [
        Found(f"{info.dataset.url}/{pattern}", names[pattern], pattern, named=False)
        for pattern in patterns
        if pattern in names
    ]
    found = [
        *listed,
        *(item for pattern in patterns if pattern not in names for item in found_in(info.dataset, pattern)),
    ]
    readable = set(data_files([item.path for item in found]))
    kept = tuple(item for item in found if item.path in readable)
    if not kept:
        raise UsageError(_no_files(wanted, info))
    return [FoundFiles(str(wanted), kept)]


def _config(info: HubInfo, wanted: DatasetName, names: list[str]) -> tuple[str | None, Splits]:
    """The config that is meant, if there are any, and its splits."""
    configs = configs_of(info.card)
    name = wanted.config or default_config(info.card, configs)
    if name in configs:
        return name, configs[name]
    files = data_files(names)
    if wanted.config:  # the Hub's own conversions to Parquet, and many others, have a folder for each config
        inside = data_files([file for file in names if file.startswith(f"{wanted.config.strip('/')}/")])
        if inside:
            return wanted.config, splits_by_name(inside)
    if configs:
        shown = ", ".join([*configs][:_SHOWN]) + (", ..." if len(configs) > _SHOWN else "")
        asked = f"no config {wanted.config!r}" if wanted.config else "several configs and no default one"
        near = did_you_mean(wanted.config, configs) if wanted.config else ""
        example = next(iter(configs))
        raise UsageError(f"{wanted} has {asked}.{near} Choose one, like {wanted.name}:{example}. Configs: {shown}")
    if wanted.config:
        raise UsageError(
            f"{wanted}: its README lists no configs, and there is no folder {wanted.config!r}. Leave it out."
        )
    splits = splits_by_name(files)
    if not splits:
        raise UsageError(_no_files(wanted, info))
    return None, splits


def _no_files(wanted: DatasetName, info: HubInfo) -> str:
    converted = wanted.name + (f":{wanted.config}" if wanted.config else "") + "@refs/convert/parquet"
    return (
        f"{wanted} ({info.dataset.url}) holds no Parquet, JSON lines, CSV, Arrow or text there. A dataset that a script "
        f"makes is often there as Parquet on a branch of the Hub's own: --dataset {converted}. Or name its files: "
        f"hf://datasets/{info.dataset.repo}/..."
    )


def _text_field(name: str, files: Sequence[Argument], read: ReadConfig) -> str:
    """The field of the first file that is obviously the text."""
    first = files[0]
    [source] = describe_found(first.files[:1], read) if isinstance(first, FoundFiles) else discover([first], read)
    if source.format in ("text", "lines") or read.separator:
        return read.text_field
    texts, others = _fields(source, read)
    for field in _OBVIOUS:
        if field in texts:
            return field
    if len(texts) == 1:
        return texts[0]
    seen = ", ".join([*(f"{field} (text)" for field in texts), *others]) or "none that could be read"
    raise UsageError(
        f"{name}: which field is the text? {source.path.rpartition('/')[2]} has no field 'text' that holds any, and "
        f"{len(texts)} others do. Choose one with --text-field; fields: {seen}"
    )


def _fields(source: Input, read: ReadConfig) -> tuple[list[str], list[str]]:
    """Those that hold text in the first records, and the rest."""
    config = ReadConfig(format=read.format, kind="record", max_doc_bytes=read.max_doc_bytes)
    reader = open_reader(source, 0, config, _LOOK_BYTES)
    texts_of = (text for batch in islice(reader.read(), _LOOKED_AT) for text in batch.text[:_LOOKED_AT].to_pylist())
    records = (json.loads(text) for text in islice(texts_of, _LOOKED_AT))
    held: dict[str, set[type]] = {}
    for record in records:
        for field, value in record.items():
            held.setdefault(field, set()).update([] if value is None else [type(value)])
    if not held:
        raise InputError(
            f"{source.path}: no record could be read at its beginning. Look into it, or choose another split."
        )
    texts = [field for field, kinds in held.items() if kinds == {str}]
    return texts, [field for field in held if field not in texts]
