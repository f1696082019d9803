"""JSON objects -> the fields that are text, and those that are kept beside them.

In: lines, one JSON object each. Out: `Found`: columns of text. What else an object holds is skipped, not parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.config import ReadConfig, RecordKind, split_path
from tokpress.errors import UsageError
from tokpress.records import BAD_JSON, INVALID_UTF8, MISSING_FIELD, WRONG_TYPE
from tokpress.sources.base import empty_text
from tokpress.sources.kept import raw_as_text, value_as_text

BAD_LINE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # a wrong type is a DecodeError too
Path = tuple[str, ...]


class Found(NamedTuple):
    """What is taken out of some lines: the text (null where there is none), and the other fields that were asked for."""

    text: pa.LargeStringArray
    kept: pa.RecordBatch | None = None


def join_found(parts: list[Found]) -> Found:
    if len(parts) == 1:
        return parts[0]
    kept = [part.kept for part in parts if part.kept is not None]
    text = pa.concat_arrays([part.text for part in parts]) if parts else empty_text()
    return Found(text, pa.concat_batches(kept) if kept else None)


class _Kept(NamedTuple):
    """Where a kept field leaves the ways to the texts, and how it goes on from there."""

    branch: Path
    name: str
    way: Path


class JsonFields:
    """Made of one record type for each name on the ways to the texts. Kept fields are left unparsed in them until they are
    made text, so that none of them can make a record bad."""

    def __init__(self, config: ReadConfig) -> None:
        self._kind: RecordKind = config.kind
        self._paths = [config.field_path, *(split_path(field) for field in config.required)]
        self._required = config.required
        self._keep = config.keep
        self._kept = [_leave(self._paths, field) for field in config.keep] if config.kind != "record" else []
        self._decoder = msgspec.json.Decoder(self._type_at(()))

    def _type_at(self, branch: Path) -> Any:
        """The record type for objects at the end of `branch`, or what a text is typed as."""
        depth = len(branch)
        if branch in self._paths:
            if any(len(path) > depth and path[:depth] == branch for path in self._paths):
                raise UsageError(f"field {'.'.join(branch)!r} cannot be text and hold another text. Name other fields.")
            raw = self._kind != "text" and branch == self._paths[0]
            return msgspec.Raw if raw else str | None
        names = list(dict.fromkeys(path[depth] for path in self._paths if path[:depth] == branch))
        kept = {kept.name for kept in self._kept if kept.branch == branch}
        fields: list[tuple[str, Any, Any]] = []
        for name in names:
            kind = self._type_at((*branch, name))
            is_raw = kind is msgspec.Raw
            fields.append((_attribute(name), kind if is_raw else kind | None, msgspec.Raw() if is_raw else None))
        fields += [(_attribute(name), msgspec.Raw, msgspec.Raw()) for name in kept]
        rename = {_attribute(name): name for name in (*names, *kept)}
        try:
            return msgspec.defstruct("Record", fields, rename=rename, gc=False)
        except ValueError as error:
            raise UsageError(f"--text-field {'.'.join(names)!r} cannot be used for JSON: {error}.") from error

    def parse(self, lines: memoryview | bytes) -> Found:
        """The fields of every object. Raises one of BAD_LINE if an object is bad."""
        records = self._decoder.decode_lines(lines)
        text, *others = (_walk(records, path) for path in self._paths)
        if self._kind == "record":
            kept = [[raw_as_text(record, split_path(field)) for record in records] for field in self._keep]
        else:
            kept = [
                [raw_as_text(value, kept.way) for value in _walk(records, (*kept.branch, kept.name))]
                for kept in self._kept
            ]
        return self._found(text if self._kind == "text" else [_json(value) for value in text], [*others, *kept])

    def parse_with_python(self, line: bytes) -> Found | None:
        """One object as Python's own `json` takes it; None if there is no such object, or a text is missing in it."""
        record = _load(line)
        if not isinstance(record, dict):
            return None
        text, *others = (_at(record, path) for path in self._paths)
        if self._kind != "text" and text is not None:
            text = json.dumps(text)
        kept = [[value_as_text(_at(record, split_path(field)))] for field in self._keep]
        if not all(isinstance(value, str) for value in (text, *others)):
            return None
        try:
            return self._found([text], [*([value] for value in others), *kept])
        except UnicodeEncodeError:  # half a surrogate pair
            return None

    def _found(self, texts: list[str | None], columns: list[list[str | None]]) -> Found:
        text = pa.array(texts, pa.large_string())
        if not columns:
            return Found(text)
        others = [pa.array(column, pa.large_string()) for column in columns]
        missing = [column.is_null() for column in others[: len(self._required)] if column.null_count]
        for nulls in missing:  # a record without one of its texts has none
            text = pc.if_else(nulls, pa.scalar(None, pa.large_string()), text)
        return Found(text, pa.record_batch(others, names=[*self._required, *self._keep]))

    def explain(self, line: bytes) -> tuple[str, str]:
        """Reason and detail for a line that `parse` gives no text for."""
        if not (line.startswith(b"{") and line.endswith(b"}")):
            cut = line.startswith(b"{")
            return BAD_JSON, "the object is not closed on its line" if cut else "the line is not a JSON object"
        try:
            found = self.parse(line)
        except UnicodeDecodeError as error:
            return INVALID_UTF8, f"byte 0x{error.object[error.start]:02x} in the text: {error.reason}"
        except msgspec.ValidationError as error:
            return WRONG_TYPE, str(error).replace("$[0]", "$")
        except msgspec.DecodeError as error:
            record = _load(line)
            if all(isinstance(_at(record, path), str) for path in self._paths):
                return INVALID_UTF8, "half a surrogate pair in the text stands for no character"
            return BAD_JSON, str(error).removeprefix("JSON is malformed: ")
        except RecursionError:
            return BAD_JSON, "nested too deeply"
        if len(found.text) != 1:
            return BAD_JSON, f"{len(found.text)} JSON objects on one line"
        return self._missing(found)

    def _missing(self, found: Found) -> tuple[str, str]:
        for name in self._required:
            if found.kept is not None and not found.kept.column(name)[0].is_valid:
                return MISSING_FIELD, f"no text at field {name!r}"
        name = ".".join(self._paths[0])
        if self._kind == "json":
            return MISSING_FIELD, f"nothing at field {name!r}; choose one with --messages-field"
        option = "--prompt-field" if self._required else "--text-field"
        return MISSING_FIELD, f"no text at field {name!r}; choose one with {option}"


def field_names(line: bytes) -> list[str]:
    """What the object on a line has, as options name it; nothing if there is none."""
    record = _load(line)
    return list(_names(record, "")) if isinstance(record, dict) else []


def _names(record: dict[str, Any], before: str) -> Iterator[str]:
    for name, value in record.items():
        path = before + name.replace("\\", "\\\\").replace(".", "\\.")
        if isinstance(value, dict) and value:
            yield from _names(value, f"{path}.")
        else:
            yield path


def _walk(records: list[Any], path: Path) -> list[Any]:
    for depth, name in enumerate(path):
        value_of = attrgetter(_attribute(name))
        if depth:
            records = [None if record is None else value_of(record) for record in records]
        else:
            records = list(map(value_of, records))
    return records


def _json(value: msgspec.Raw | None) -> str | None:
    """A value as it stands. Raises UnicodeDecodeError."""
    data = bytes(value or b"null")
    return None if data == b"null" else data.decode()


def _leave(paths: Sequence[Path], field: str) -> _Kept:
    names = split_path(field)
    shared = max(_shared(names, path) for path in paths)
    if any(_shared(names, path) == min(len(names), len(path)) for path in paths):
        raise UsageError(
            f"--keep {field!r} is the text, holds it, or lies inside it. Keep other fields, like --keep id,url"
        )
    return _Kept(names[:shared], names[shared], names[shared + 1 :])


def _shared(names: Path, path: Path) -> int:
    """How many names two ways begin with alike."""
    same = (a == b for a, b in zip(names, path, strict=False))
    return next((i for i, equal in enumerate(same) if not equal), min(len(names), len(path)))


def _attribute(name: str) -> str:
    return f"field_{name.encode().hex()}"  # any name, as an identifier


def _load(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
