"""JSON objects -> the text field, and the fields that are kept beside it.

In: lines, one JSON object each. Out: `Found`: columns of text. What else an object holds is skipped, not parsed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tokpress.batches import BAD_JSON, INVALID_UTF8, MISSING_FIELD, WRONG_TYPE
from tokpress.config import split_path
from tokpress.errors import UsageError
from tokpress.sources.base import empty_text
from tokpress.sources.kept import raw_as_text, value_as_text

BAD_LINE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # a wrong type is a DecodeError too


class Found(NamedTuple):
    """What is taken out of some lines: the text (null where there is none), and with --keep the other fields."""

    text: pa.LargeStringArray
    kept: pa.RecordBatch | None = None


def join_found(parts: list[Found]) -> Found:
    if len(parts) == 1:
        return parts[0]
    kept = [part.kept for part in parts if part.kept is not None]
    text = pa.concat_arrays([part.text for part in parts]) if parts else empty_text()
    return Found(text, pa.concat_batches(kept) if kept else None)


class _Kept(NamedTuple):
    """Where a kept field leaves the way to the text, and how it goes on from there."""

    depth: int
    name: str
    way: tuple[str, ...]


class JsonFields:
    """Made of one record type for each name on the way to the text. Kept fields are left unparsed in them until they are
    made text, so that none of them can make a record bad."""

    def __init__(self, path: tuple[str, ...], keep: Sequence[str]) -> None:
        self._path = path
        self._keep = keep
        self._kept = [_leave(path, field) for field in keep]
        kind: Any = str | None
        for depth, name in reversed(list(enumerate(path))):
            beside = {_attribute(kept): kept.name for kept in self._kept if kept.depth == depth}
            fields = [("value", kind | None, None), *((attribute, msgspec.Raw, msgspec.Raw()) for attribute in beside)]
            try:
                kind = msgspec.defstruct("Record", fields, rename={"value": name} | beside, gc=False)
            except ValueError as error:
                raise UsageError(f"--text-field {'.'.join(path)!r} cannot be used for JSON: {error}.") from error
        self._decoder = msgspec.json.Decoder(kind)

    def parse(self, lines: memoryview | bytes) -> Found:
        """The fields of every object. Raises one of BAD_LINE if an object is bad."""
        records = self._decoder.decode_lines(lines)
        columns: list[Any] = [None] * len(self._kept)
        for depth in range(len(self._path)):
            for i, kept in enumerate(self._kept):
                if kept.depth == depth:
                    values = [getattr(record, _attribute(kept), None) for record in records]
                    columns[i] = [raw_as_text(value, kept.way) for value in values]
            records = [None if record is None else record.value for record in records]
        return self._found(records, columns)

    def parse_with_python(self, line: bytes) -> Found | None:
        """One object as Python's own `json` takes it; None if there is no such object, or no text in it."""
        record = _load(line)
        text = _at(record, self._path)
        kept = [[value_as_text(_at(record, split_path(field)))] for field in self._keep]
        try:
            return self._found([text], kept) if isinstance(text, str) else None
        except UnicodeEncodeError:  # half a surrogate pair
            return None

    def _found(self, texts: list[str | None], columns: list[list[str | None]]) -> Found:
        kept = [pa.array(column, pa.large_string()) for column in columns]
        return Found(
            pa.array(texts, pa.large_string()), pa.record_batch(kept, names=list(self._keep)) if kept else None
        )

    def explain(self, line: bytes) -> tuple[str, str]:
        """Reason and detail for a line that `parse` gives no text for."""
        if not (line.startswith(b"{") and line.endswith(b"}")):
            cut = line.startswith(b"{")
            return BAD_JSON, "the object is not closed on its line" if cut else "the line is not a JSON object"
        try:
            records = len(self.parse(line).text)
        except UnicodeDecodeError as error:
            return INVALID_UTF8, f"byte 0x{error.object[error.start]:02x} in the text: {error.reason}"
        except msgspec.ValidationError as error:
            return WRONG_TYPE, str(error).replace("$[0]", "$")
        except msgspec.DecodeError as error:
            if isinstance(_at(_load(line), self._path), str):
                return INVALID_UTF8, "half a surrogate pair in the text stands for no character"
            return BAD_JSON, str(error).removeprefix("JSON is malformed: ")
        except RecursionError:
            return BAD_JSON, "nested too deeply"
        if records != 1:
            return BAD_JSON, f"{records} JSON objects on one line"
        return MISSING_FIELD, f"no text at field {'.'.join(self._path)!r}; choose one with --text-field"


def _leave(path: tuple[str, ...], field: str) -> _Kept:
    names = split_path(field)
    for depth, (kept, on_the_way) in enumerate(zip(names, path, strict=False)):
        if kept != on_the_way:
            return _Kept(depth, kept, names[depth + 1 :])
    raise UsageError(
        f"--keep {field!r} is the text, holds it, or lies inside it. Keep other fields, like --keep id,url"
    )


def _attribute(kept: _Kept) -> str:
    return f"kept_{kept.name.encode().hex()}"  # any name, as an identifier


def _load(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
