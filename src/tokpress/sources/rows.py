"""Columns of a table -> text batches: what Parquet and Arrow readers share.

In: slices of one column, as a subclass reads them. Out: batches whose positions are row numbers. Rows without text, with
bytes that are not UTF-8, or over the limit are rejected one by one; the rest of the slice is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import Int64s, TextBatch
from tokpress.config import ReadConfig, split_path
from tokpress.errors import InputError
from tokpress.records import DAMAGED_INPUT, MISSING_FIELD, TOO_LARGE, Input, Reject
from tokpress.sources.base import BatchMaker, Growing, empty_text, is_valid_utf8
from tokpress.sources.kept import column_as_json, column_as_text, sound_bytes
from tokpress.sources.opening import cannot_read


@dataclass(frozen=True, slots=True)
class Rows:
    """A slice of the table: the columns that must hold text, the main one first, and those of --keep, already taken out
    of their structs."""

    column: pa.Array
    required: list[pa.Array]
    kept: list[pa.Array]
    first: int  # row number of column[0]
    input_bytes: int  # of the file, for progress


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows that the file should hold and that cannot be read."""

    first: int
    count: int  # 0 if the file does not tell
    message: str
    input_bytes: int


class RowReader(ABC):
    """A reader of rows. Positions are row numbers."""

    most_bad: int | None = None

    def __init__(
        self, source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
    ) -> None:
        self.source = source
        self.maker = BatchMaker(source, index)
        self.path = config.field_path
        self.kind = config.kind
        self.required = {name: split_path(name) for name in config.required}
        self.keep = {name: split_path(name) for name in config.keep}
        self.optional = {split_path(name) for name in config.optional}
        self.max_bytes = config.max_doc_bytes
        self.batch_bytes = batch_bytes
        self.growing = growing

    @abstractmethod
    def slices(self, start: int, stop: int | None) -> Iterator[Rows | LostRows]:
        """The rows [start, stop), a few at a time."""

    @abstractmethod
    def probe(self, fraction: float) -> int: ...

    @abstractmethod
    def cuts(self, unit_bytes: int) -> list[int]: ...

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[TextBatch]:
        for piece in self.slices(start, stop):
            if isinstance(piece, Rows) and self.growing:
                self.growing(piece.column.nbytes)
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
            column = sound(rows.column if self.kind == "text" else column_as_json(rows.column))
            required = [sound(other) for other in rows.required]
            kept = [column_as_text(other) for other in rows.kept]
        except pa.ArrowException as error:
            yield from self._lost(LostRows(rows.first, len(rows.column), f"corrupt rows: {error}", rows.input_bytes))
            return
        names = [*self.required, *self.keep]
        for first, last in self._cut(column):
            columns = [_as_bytes(other[first:last]) for other in (column, *required)]
            texts, positions, rejects = self._checked(columns, rows.first + first)
            good = pa.array(positions - rows.first)
            beside = [*texts[1:], *(other.take(good) for other in kept)]
            yield self.maker.batch(
                texts[0],
                positions,
                rejects,
                next_position=rows.first + last,
                input_bytes=rows.input_bytes * (last - first) // len(column),
                kept=pa.record_batch(beside, names=names) if beside else None,
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

    def _checked(
        self, columns: list[pa.LargeBinaryArray], first_row: int
    ) -> tuple[list[pa.LargeStringArray], Int64s, list[Reject]]:
        """The texts of the good rows, a column for each field that must hold text."""
        rows = np.arange(first_row, first_row + len(columns[0]), dtype=np.int64)
        sizes = np.sum([_sizes(column) for column in columns], axis=0)
        if not any(column.null_count for column in columns) and not (sizes > self.max_bytes).any():
            valid = [column.view(pa.large_string()) for column in columns]
            if all(map(is_valid_utf8, valid)):
                return valid, rows, []
        rejects = []
        good = np.zeros(len(rows), bool)
        for i, row in enumerate(rows.tolist()):  # one by one, but only where something is bad
            size = int(sizes[i])
            values = [column[i : i + 1] for column in columns]
            missing = next((k for k, value in enumerate(values) if value.null_count), None)
            if missing is not None:
                detail = f"column {['.'.join(self.path), *self.required][missing]!r} is null in this row"
                rejects.append(self.maker.reject(row, MISSING_FIELD, detail))
            elif size > self.max_bytes:
                detail = f"the text has {size:,} bytes, the limit is {self.max_bytes:,}; raise it with --max-doc-bytes"
                rejects.append(self.maker.reject(row, TOO_LARGE, detail))
            elif not all(is_valid_utf8(value.view(pa.large_string())) for value in values):
                bad = next(value for value in values if not is_valid_utf8(value.view(pa.large_string())))
                rejects.append(self.maker.invalid_utf8(row, bad[0].as_py()))
            else:
                good[i] = True
        return [column.filter(pa.array(good)).view(pa.large_string()) for column in columns], rows[good], rejects

    def check_columns(self, schema: pa.Schema) -> None:
        """Raises InputError unless the text and the kept fields are there, and the text is text."""
        option = {"text": "--prompt-field" if self.required else "--text-field", "json": "--messages-field"}
        texts = {self.path: option.get(self.kind, "")} | dict.fromkeys(self.required.values(), "--completion-field")
        for path, name in texts.items():
            kind = self._type_at(schema, path, name)
            value = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not _is_text(value) and (path != self.path or self.kind == "text"):
                raise InputError(
                    f"{self.source.path}: column {'.'.join(path)!r} holds {kind}, not text. "
                    f"Columns: {', '.join(schema.names)}. Choose one with {name}."
                )
        for path in self.keep.values():
            if path not in self.optional or path[0] in schema.names:
                self._type_at(schema, path, "--keep")

    def _type_at(self, schema: pa.Schema, path: tuple[str, ...], option: str) -> pa.DataType:
        try:
            names = schema.names
        except UnicodeDecodeError as error:
            raise InputError(f"{self.source.path}: the name of a column is not text, the file is damaged.") from error
        kind: Any = pa.struct(schema)
        for name in path:
            index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
            if index < 0:
                has = "more than one" if names.count(path[0]) > 1 else "no"
                raise InputError(
                    f"{self.source.path} has {has} column {'.'.join(path)!r}. "
                    f"Columns: {', '.join(names)}. Choose one with {option}."
                )
            kind = kind.field(index).type
        return kind

    def rows(self, batch: pa.RecordBatch, start: int, stop: int, *, first_row: int, input_bytes: int) -> Rows:
        """Rows start..stop of a record batch whose first row is `first_row`."""
        text, *others = (_column_at(batch, path)[start:stop] for path in self.paths)
        required, kept = others[: len(self.required)], others[len(self.required) :]
        return Rows(text, required, kept, first_row + start, input_bytes)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """Of all columns that are read; the empty one stands for the whole row."""
        return [self.path, *self.required.values(), *self.keep.values()]

    def column_names(self, schema: pa.Schema) -> list[str]:
        """The columns of a file that are read, without the fields inside them."""
        return [name for name in schema.names if not self.path or any(path[0] == name for path in self.paths)]

    def raise_if_io(self, error: Exception) -> None:
        """An error of the disk is not a bad file: Arrow reports its own findings without an errno."""
        if isinstance(error, OSError) and error.errno:
            raise cannot_read(self.source, error) from error


def _column_at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    if not path:
        return batch.to_struct_array()
    if path[0] not in batch.schema.names:  # it is optional, or would have been reported
        return pa.nulls(batch.num_rows, pa.large_string())
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def run_starts(pieces: Iterable[tuple[int, int]], unit_bytes: int) -> list[int]:
    """First rows of runs of about a unit's size, of pieces with so many rows and bytes each."""
    starts = [0]
    row = taken = 0
    for rows, size in pieces:
        if taken >= unit_bytes:
            starts.append(row)
            taken = 0
        row += rows
        taken += size
    return starts


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
    """The column as bytes that are known to be sound. A dictionary stays one: spelled out, one long text in it may be a
    thousand rows."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, sound(column.dictionary), safe=True)
    return sound_bytes(column).cast(pa.large_binary())


def _as_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column


def _sizes(column: pa.Array) -> Int64s:
    """Bytes of each row, without spelling out a dictionary."""
    if pa.types.is_dictionary(column.type):
        sizes = pc.binary_length(column.dictionary).take(column.indices)
    else:
        sizes = pc.binary_length(column)
    return cast(Int64s, pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False))
