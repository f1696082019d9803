"""Columns of a table -> text batches: what Parquet and Arrow readers share.

In: slices of one column, as a subclass reads them. Out: batches whose positions are row numbers. Rows without text, with
bytes that are not UTF-8, or over the limit are rejected one by one; the rest of the slice is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import (
    DAMAGED_INPUT,
    MISSING_FIELD,
    TOO_LARGE,
    Int64s,
    Reject,
    TextBatch,
    string_buffers,
)
from tokpress.config import ReadConfig
from tokpress.errors import InputError
from tokpress.sources.base import BatchMaker, Input, empty_text, is_valid_utf8


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
            if isinstance(piece, LostRows):
                count = max(piece.count, 1)
                yield self.maker.batch(
                    empty_text(),
                    np.empty(0, np.int64),
                    [self.maker.reject(piece.first, DAMAGED_INPUT, piece.message, records=count)],
                    next_position=piece.first + count,
                    input_bytes=piece.input_bytes,
                )
                continue
            for first, last in self._cut(piece.column):
                text, positions, rejects = self._checked(piece.column[first:last], piece.first + first)
                yield self.maker.batch(
                    text,
                    positions,
                    rejects,
                    next_position=piece.first + last,
                    input_bytes=piece.input_bytes * (last - first) // len(piece.column),
                )

    def _cut(self, column: pa.Array) -> Iterator[tuple[int, int]]:
        """Bounds of pieces of about `batch_bytes`, so that one huge slice does not become one huge batch."""
        if column.nbytes <= self.batch_bytes:
            yield 0, len(column)
            return
        ends = np.cumsum(pc.fill_null(pc.binary_length(_as_bytes(column)), 0).to_numpy(zero_copy_only=False))
        first = 0
        while first < len(column):
            taken = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, taken + self.batch_bytes, "right")), first + 1)
            yield first, last
            first = last

    def _checked(self, column: pa.Array, first_row: int) -> tuple[pa.LargeStringArray, Int64s, list[Reject]]:
        rows = np.arange(first_row, first_row + len(column), dtype=np.int64)
        text = _as_bytes(column)
        sizes = np.diff(string_buffers(text)[0])
        if not text.null_count and not (sizes > self.max_bytes).any():
            text = text.view(pa.large_string())
            if is_valid_utf8(text):
                return text, rows, []
        rejects = []
        good = np.zeros(len(column), bool)
        for i, size in enumerate(sizes):  # one by one, but only in a slice with something bad in it
            row = int(rows[i])
            if not column[i].is_valid:
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
        if self.path[0] not in schema.names:
            raise self._no_such_column(schema)
        index: int = schema.get_field_index(self.path[0])
        kind = schema.field(index).type
        for name in self.path[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise self._no_such_column(schema)
            kind = kind.field(name).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not _is_text(value):
            raise InputError(
                f"{self.source.path}: column {'.'.join(self.path)!r} holds {kind}, not text. "
                f"Columns: {', '.join(schema.names)}. Choose one with --text-field."
            )
        return index

    def _no_such_column(self, schema: pa.Schema) -> InputError:
        return InputError(
            f"{self.source.path} has no column {'.'.join(self.path)!r}. "
            f"Columns: {', '.join(schema.names)}. Choose one with --text-field."
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


def _as_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    return column.cast(pa.large_binary())
