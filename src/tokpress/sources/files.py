"""Which files there are to read, in which order, and what they are.

In: what a user typed: files, directories, globs, addresses, "-". Out: `Input`s, sorted within each argument, each file once.
A directory stands for every file in it whose name tells a format; one written by `datasets.save_to_disk` for its data
files, in its own order.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from stat import S_ISREG

import msgspec

from tokpress.arguments import did_you_mean
from tokpress.config import ReadConfig
from tokpress.errors import InputError, UsageError
from tokpress.records import STDIN, Input
from tokpress.sources import remote
from tokpress.sources.base import FORMATS
from tokpress.sources.compression import EXTENSIONS as COMPRESSIONS
from tokpress.sources.extensions import FORMAT_OF_EXTENSION, STREAMS, format_and_compression, why_not_read
from tokpress.sources.opening import changed
from tokpress.sources.ours import LeftOut, is_ours
from tokpress.sources.remote import Found, FoundFiles, expand, is_remote_input
from tokpress.storage.requests import ObjectChanged

_DATASET_DESCRIPTIONS = ("dataset_info.json", "dataset_dict.json", "state.json")  # beside the data of `save_to_disk`


Argument = str | os.PathLike[str] | FoundFiles


def discover(
    arguments: Sequence[Argument],
    config: ReadConfig,
    *,
    out: str | os.PathLike[str] | None = None,
    named: bool = False,
) -> list[Input]:
    """All inputs, or an error that says which argument leads to none. What tokpress wrote is none, nor what `out` has.
    `named`: with their names below the argument."""
    if not arguments:
        raise UsageError("no input. Name files, directories, globs, or - for standard input; or a --dataset.")
    inputs: dict[str, Input] = {}
    left_out = LeftOut(out)
    for argument in arguments:
        found = _described(argument, config, left_out)
        if not found:
            raise UsageError(_nothing_found(str(argument), config))
        for item in found:
            once = item.path if item.is_remote or item.path == STDIN else os.path.realpath(item.path)
            inputs.setdefault(once, item if named else msgspec.structs.replace(item, name=msgspec.UNSET))
    return list(inputs.values())


def _local(argument: str, config: ReadConfig, left_out: LeftOut) -> list[Input]:
    found = [_describe(path, config) for path in _expand(argument, config, left_out)]
    return [msgspec.structs.replace(item, name=_name_below(argument, item.path)) for item in found]


def _described(argument: Argument, config: ReadConfig, left_out: LeftOut) -> list[Input]:
    if isinstance(argument, FoundFiles):
        return describe_found(argument.files, config)
    path = os.fspath(argument)
    return describe_found(expand(path), config) if is_remote_input(path) else _local(path, config, left_out)


def describe_found(found: Sequence[Found], config: ReadConfig) -> list[Input]:
    """Those of remote objects that were named, or whose names tell a format."""
    inputs = []
    for item in found:
        last = item.name.rpartition("/")[2]
        if item.named or (last not in _DATASET_DESCRIPTIONS and (config.format or format_and_compression(last)[0])):
            kind, compression = _kind(item.path, config)
            size, version = item.stat.size, item.stat.version
            inputs.append(
                Input(
                    path=item.path,
                    format=kind,
                    compression=compression,
                    size=size,
                    mtime_ns=0,
                    tag=version,
                    name=item.name,
                )
            )
    return inputs


def _expand(argument: str, config: ReadConfig, left_out: LeftOut) -> list[str]:
    if argument == STDIN:
        if sys.stdin is None:
            raise UsageError("there is no standard input: it is closed. Name files, or leave it open.")
        return [STDIN]
    if Path(argument).is_dir():
        above = frozenset(Path(argument).resolve().parents)
        return list(_walk(Path(argument), config, above, left_out))
    if Path(argument).exists():
        return [argument]
    if glob.has_magic(argument):
        matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        texts = (match for match in matches if not left_out.match(Path(match)))
        return [path for match in texts for path in _expand(match, config, left_out)]
    if "://" in argument:
        scheme = argument.partition("://")[0]
        raise UsageError(
            f"{argument}: inputs at {scheme}:// are not read. Known are s3://, gs://, az://, https:// and hf://datasets/; "
            "copy it to one of these, or to a disk."
        )
    path = Path(argument)
    near = sorted(map(str, path.parent.iterdir())) if path.parent.is_dir() else []
    raise UsageError(
        f"no such file or directory: {argument}.{did_you_mean(str(path), near)} Check the path; quote globs if your shell "
        "does not."
    )


def _name_below(argument: str, path: str) -> str:
    """A file's name relative to the directory that was named, or to what stands before the first wildcard."""
    if Path(argument).is_dir():
        return os.path.relpath(path, argument)
    if path in (argument, STDIN):
        return os.path.basename(path)  # noqa: PTH119
    fixed = list(takewhile(lambda part: not glob.has_magic(part), argument.split("/")))
    return os.path.relpath(path, "/".join([*fixed, ""]) or ".")


def _walk(directory: Path, config: ReadConfig, above: frozenset[Path], left_out: LeftOut) -> Iterator[str]:
    """The files of a directory that hold records, by name; hidden ones and those of other kinds are left out."""
    here = directory.resolve()
    if here in above or left_out.directory(directory):  # `above`: a link to a directory that it stands in
        return
    if (directory / "state.json").is_file() and (directory / "dataset_info.json").is_file():
        yield from _data_files(directory)
        return
    for entry in sorted(directory.iterdir(), key=lambda path: path.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry, config, above | {here}, left_out)
        elif entry.name not in _DATASET_DESCRIPTIONS and (config.format or format_and_compression(entry.name)[0]):
            yield str(entry)


class _DataFile(msgspec.Struct):
    filename: str


class _SavedDataset(msgspec.Struct):
    """`state.json`, as `datasets.save_to_disk` writes it."""

    data_files: list[_DataFile] = msgspec.field(name="_data_files")


def _data_files(directory: Path) -> Iterator[str]:
    state = directory / "state.json"
    try:
        saved = msgspec.json.decode(state.read_bytes(), type=_SavedDataset)
    except msgspec.DecodeError as error:
        raise InputError(f"{state} is damaged: {error}. Name the data files of {directory} one by one.") from error
    for entry in saved.data_files:
        if Path(entry.filename).name != entry.filename:
            raise InputError(f"{state} is damaged: {entry.filename!r} is not the name of a file beside it.")
        yield str(directory / entry.filename)


def _kind(path: str, config: ReadConfig) -> tuple[str, str | None]:
    """Format and compression of an input, or an error that says why it has none that can be read."""
    if not path.isprintable() and "\udc80" <= max(path) <= "\udcff":
        if sys.getfilesystemencoding() != "utf-8":
            raise UsageError(
                f"{path!a}: this Python takes names for {sys.getfilesystemencoding()}, as the locale says. Run it with "
                "PYTHONUTF8=1, or with a locale like C.UTF-8."
            )
        raise UsageError(f"{path!a}: the name of this file is not UTF-8 and cannot be stored. Rename it.")
    by_name, compression = format_and_compression(path)
    kind = by_name
    if config.format is not None:
        kind, _, asked = config.format.partition(".")
        if kind not in FORMATS:
            raise UsageError(f"--format {config.format!r} is not one of {', '.join(FORMATS)} (also like jsonl.zst).")
        if asked and f".{asked}" not in COMPRESSIONS:
            raise UsageError(f"--format {config.format!r}: {asked!r} is not one of {' '.join(COMPRESSIONS)}.")
        compression = COMPRESSIONS.get(f".{asked}", compression)
    elif path == STDIN:
        kind = "jsonl"
    if kind is None and (why := why_not_read(path)):
        raise UsageError(f"{path} is {why}.")
    if kind is None:
        raise UsageError(f"cannot tell the format of {path} from its name. Say it: --format {'|'.join(FORMATS)}.")
    if config.separator and kind not in ("text", "lines"):
        raise UsageError(f"--separator is for plain text, but {path} is {kind}. Leave it out or add --format text.")
    if config.separator:
        kind = "text"
    if (config.keep or config.required or config.kind != "text") and kind in ("text", "lines"):
        raise UsageError(
            f"--keep is for records with fields, as are templates and --split-field, but {path} is plain text. Leave it out."
        )
    if compression and kind not in STREAMS:
        raise UsageError(f"{path}: {kind} files are compressed inside, not as a whole. Unpack it first.")
    return kind, compression


def _describe(path: str, config: ReadConfig) -> Input:
    kind, compression = _kind(path, config)
    if path == STDIN:
        if kind not in STREAMS:
            raise UsageError(f"{kind} cannot be read from standard input: it must be a file. Save it first.")
        return Input(path=STDIN, format=kind, compression=compression, size=0, mtime_ns=0)
    try:
        info = Path(path).stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    if not S_ISREG(info.st_mode):  # an input is read more than once, and what a pipe has given is gone
        raise UsageError(f"{path} is not a regular file. To read from a pipe, name - and pass it as standard input.")
    return Input(path=path, format=kind, compression=compression, size=info.st_size, mtime_ns=info.st_mtime_ns)


def check_unchanged(source: Input) -> None:
    """Raises InputError if a file is no longer the one that was planned with: a store of half the old and half the new
    would be of no use."""
    if source.path == STDIN:
        return
    try:
        if source.is_remote:
            remote.check_unchanged(source)
            return
        info = Path(source.path).stat()
    except ObjectChanged as error:
        raise changed(source) from error
    except OSError as error:
        raise InputError(
            f"cannot read {source.path}: {error.strerror}. Put it back and run the same command again."
        ) from error
    if (info.st_size, str(info.st_mtime_ns)) != (source.size, source.version):
        raise changed(source)


def _nothing_found(argument: str, config: ReadConfig) -> str:
    if is_ours(Path(argument)):
        return f"{argument} was written by tokpress: there is no text in it. Name the files that it was made of."
    if Path(argument).is_dir() and next(Path(argument).iterdir(), None) is None:
        return f"{argument} is an empty directory. Check the path, or put the inputs there."
    if Path(argument).is_dir() and config.format is None:
        for path in sorted(Path(argument).rglob("*")):
            if why := why_not_read(path.name):
                return f"no file in {argument} can be read: {path.name} is {why}."
        known = " ".join(FORMAT_OF_EXTENSION)
        return f"no file in {argument} has a name that tells its format ({known}). Say it: --format jsonl, for example."
    return f"nothing matches {argument}. Check the path; quote globs if your shell does not."
