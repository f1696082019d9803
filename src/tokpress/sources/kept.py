"""Fields that are kept beside a document (`--keep id,url`), every value as text.

In: values of JSON, or columns of a table. Out: one column of text a field: strings as they are, null where a record has
none, anything else as JSON or as Arrow writes it. So a field has one type in all of a store, whatever its inputs are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_BYTES_OF = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def raw_as_text(value: msgspec.Raw | None, path: Sequence[str] = ()) -> str | None:
    """What stands at `path` inside a JSON value."""
    for name in path:
        try:
            value = _OBJECT.decode(value or b"").get(name)
        except _BAD_JSON:  # no object
            return None
    data = bytes(value or b"null")
    if data == b"null":
        return None
    if data.startswith(b'"'):
        with suppress(*_BAD_JSON):  # half a surrogate pair, or bytes that are not UTF-8: then as it stands
            return _TEXT.decode(data)
    return data.decode("utf-8", "backslashreplace")


def value_as_text(value: Any) -> str | None:
    """A Python value, as `json` or Arrow gives it."""
    if value is None:
        return None
    if isinstance(value, str):  # half a surrogate pair is shown as it was written
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(value, default=str)


def column_as_text(column: pa.Array) -> pa.Array:
    """Raises ArrowInvalid if the column is corrupt."""
    sound_bytes(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_nested(column.type):
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are not UTF-8, or a rare type
            return column.cast(pa.large_string())
    return pa.array([value_as_text(value) for value in column.to_pylist()], pa.large_string())


def column_as_json(column: pa.Array) -> pa.Array:
    """Values of any type as JSON; text is taken for JSON already. What is null inside an object is left out: a table gives
    every object the fields of all of them. Raises ArrowInvalid if the column is corrupt."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_nested(column.type):
        return column_as_text(column)
    column.validate(full=True)
    values = (None if value is None else msgspec.json.encode(_without_nulls(value)) for value in column.to_pylist())
    return pa.array(values, pa.large_binary())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def sound_bytes(column: pa.Array) -> pa.Array:
    """The column with text seen as bytes (else it would be checked for UTF-8 as well) and all its offsets and indices
    checked: Arrow takes those in a file on trust. Raises ArrowInvalid."""
    as_bytes = column.view(_BYTES_OF.get(column.type, column.type))
    as_bytes.validate(full=True)
    return as_bytes
