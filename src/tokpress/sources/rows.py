"""Columns of a table -> text batches: what Parquet and Arrow readers share.

In: slices of one column, as a subclass reads them. Out: batches whose positions are row numbers. Rows without text, with
bytes that are not UTF-8, or over the limit are rejected one by one; the rest of the slice is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import DAMAGED_INPUT, MISSING_FIELD, TOO_LARGE, Int64s, Reject, TextBatch
from tokpress.config import ReadConfig
from tokpress.errors import InputError
from tokpress.sources.base import BatchMaker, Input, empty_text, is_valid_utf8

_BYTES_OF = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


@dataclass(frozen=True, slots=True)
class Rows:
    """A slice of the text column, already taken out of its structs."""

    column: pa.Array
    first: int  # row number of column[0]
    input_bytes: int  # of the file, for progress


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows that the file should hold and that cannot be read."""

    first: int
    count: int  # 0 if the file does not tell
    message: str
    input_bytes: int


class RowReader:
    """A reader of rows. Positions are row numbers."""

    def __init__(self, source: Input, index: int, config: ReadConfig, batch_bytes: int) -> None:
        self.source = source
        self.maker = BatchMaker(source, index)
        self.path = config.field_path
        self.max_bytes = config.max_doc_bytes
        self.batch_bytes = batch_bytes

    def slices(self, start: int, stop: int | None) -> Iterator[Rows | LostRows]:
        raise NotImplementedError

    def probe(self, fraction: float) -> int:
        raise NotImplementedError

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[TextBatch]:
        for piece in self.slices(start, stop):
            yield from self._lost(piece) if isinstance(piece, LostRows) else self._batches_of(piece)

    def _lost(self, rows: LostRows) -> Iterator[TextBatch]:
        count = max(rows.count, 1)
        yield self.maker.batch(
            empty_text(),
            np.empty(0, np.int64),
            [self.maker.reject(rows.first, DAMAGED_INPUT, rows.message, records=count)],
            next_position=rows.first + count,
            input_bytes=rows.input_bytes,
        )

    def _batches_of(self, rows: Rows) -> Iterator[TextBatch]:
        try:
            column = sound(rows.column)
        except pa.ArrowException as error:
            yield from self._lost(LostRows(rows.first, len(rows.column), f"corrupt rows: {error}", rows.input_bytes))
            return
        for first, last in self._cut(column):
            text, positions, rejects = self._checked(_as_bytes(column[first:last]), rows.first + first)
            yield self.maker.batch(
                text,
                positions,
                rejects,
                next_position=rows.first + last,
                input_bytes=rows.input_bytes * (last - first) // len(column),
            )

    def _cut(self, column: pa.Array) -> Iterator[tuple[int, int]]:
        """Bounds of pieces of about `batch_bytes`, so that one huge slice does not become one huge batch."""
        ends = np.cumsum(_sizes(column))
        first = 0
        while first < len(column):
            taken = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, taken + self.batch_bytes, "right")), first + 1)
            yield first, last
            first = last

    def _checked(self, text: pa.LargeBinaryArray, first_row: int) -> tuple[pa.LargeStringArray, Int64s, list[Reject]]:
        rows = np.arange(first_row, first_row + len(text), dtype=np.int64)
        sizes = _sizes(text)
        if not text.null_count and not (sizes > self.max_bytes).any():
            valid = text.view(pa.large_string())
            if is_valid_utf8(valid):
                return valid, rows, []
        rejects = []
        good = np.zeros(len(text), bool)
        for i, row in enumerate(rows.tolist()):  # one by one, but only where something is bad
            size = int(sizes[i])
            if not text[i].is_valid:
                detail = f"column {'.'.join(self.path)!r} is null in this row"
                rejects.append(self.maker.reject(row, MISSING_FIELD, detail))
            elif size > self.max_bytes:
                detail = f"the text has {size:,} bytes, the limit is {self.max_bytes:,}; raise it with --max-doc-bytes"
                rejects.append(self.maker.reject(row, TOO_LARGE, detail))
            elif not is_valid_utf8(text[i : i + 1].view(pa.large_string())):
                rejects.append(self.maker.invalid_utf8(row, text[i].as_py()))
            else:
                good[i] = True
        return text.filter(pa.array(good)).view(pa.large_string()), rows[good], rejects

    def column_of(self, schema: pa.Schema) -> int:
        """The index of the top-level column, after checking that the path leads to text."""
        try:
            names = schema.names
        except UnicodeDecodeError as error:
            raise InputError(f"{self.source.path}: the name of a column is not text, the file is damaged.") from error
        index: int = schema.get_field_index(self.path[0])
        if index < 0:
            raise self._no_such_column(names)
        kind = schema.field(index).type
        for name in self.path[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise self._no_such_column(names)
            kind = kind.field(name).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not _is_text(value):
            raise InputError(
                f"{self.source.path}: column {'.'.join(self.path)!r} holds {kind}, not text. "
                f"Columns: {', '.join(names)}. Choose one with --text-field."
            )
        return index

    def _no_such_column(self, names: list[str]) -> InputError:
        has = "more than one" if names.count(self.path[0]) > 1 else "no"
        return InputError(
            f"{self.source.path} has {has} column {'.'.join(self.path)!r}. "
            f"Columns: {', '.join(names)}. Choose one with --text-field."
        )

    def raise_if_io(self, error: Exception) -> None:
        """An error of the disk is not a bad file: Arrow reports its own findings without an errno."""
        if getattr(error, "errno", None):
            raise InputError(
                f"cannot read {self.source.path}: {error}. Mend that and run the same command again."
            ) from error

    def take_field(self, column: pa.Array) -> pa.Array:
        return pc.struct_field(column, list(self.path[1:])) if self.path[1:] else column


def _is_text(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_null,
    )
    return any(check(kind) for check in checks)


def sound(column: pa.Array) -> pa.Array:
    """The column as bytes, with all its offsets and indices checked: Arrow takes those in a file on trust.

    A dictionary stays one. Spelled out, one long text in it may be a thousand rows.
    """
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, sound(column.dictionary), safe=True)
    as_bytes = column.view(_BYTES_OF.get(column.type, column.type))  # text would be checked for UTF-8 as well
    as_bytes.validate(full=True)
    return as_bytes.cast(pa.large_binary())


def _as_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column


def _sizes(column: pa.Array) -> Int64s:
    """Bytes of each row, without spelling out a dictionary."""
    if pa.types.is_dictionary(column.type):
        sizes = pc.binary_length(column.dictionary).take(column.indices)
    else:
        sizes = pc.binary_length(column)
    return cast(Int64s, pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False))
