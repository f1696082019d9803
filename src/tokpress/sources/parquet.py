"""Parquet -> text batches.

In: a Parquet file. Out: the text column, a few rows at a time, so that memory follows the pages and not the row group.
A row group that cannot be read is one reject that says how many rows it held; the other row groups are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from tokpress.sources.opening import open_input
from tokpress.sources.remote import RemoteInput
from tokpress.sources.rows import LostRows, RowReader, Rows, run_starts

_SMALL_GROUP_BYTES = 4 * 1024**2
_SLICE_BYTES = 128 * 1024  # of a larger one at a time; less costs speed, more costs memory where sizes are uneven
_MAX_SLICE_ROWS = 4096
_DICTIONARY_BYTES = 1024**2  # what writers let a dictionary of texts grow to
_INDEX_BYTES = 3  # at most, of a row that is but an index into it
_MAX_SPELLED_OUT_BYTES = 64 * 1024**2  # where each of these rows is the longest text there
_PAGE_BUFFER_BYTES = 1024 * 1024


class ParquetReader(RowReader):
    def probe(self, fraction: float) -> int:
        """The first row of a row group: what stands before a row in its group must be decoded to get there."""
        if isinstance(self._file, str):
            return 0
        metadata = self._file.metadata
        row = 0
        for group in range(metadata.num_row_groups):
            after = row + metadata.row_group(group).num_rows
            if after > metadata.num_rows * fraction:
                break
            row = after
        return row

    def cuts(self, unit_bytes: int) -> list[int]:
        if isinstance(self._file, str):
            return [0]  # reading it will say what is wrong with it
        metadata = self._file.metadata
        groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
        return run_starts(
            ((group.num_rows, self.source.size // metadata.num_row_groups) for group in groups), unit_bytes
        )

    def slices(self, start: int, stop: int | None) -> Iterator[Rows | LostRows]:
        file = self._file
        if isinstance(file, str):
            if start == 0:
                yield LostRows(0, 0, file, self.source.size)
            return
        self.check_columns(file.schema_arrow)
        first = 0
        for group in range(file.metadata.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if last > start and (stop is None or first < stop):
                yield from self._row_group(
                    file, group, first, max(first, start), last if stop is None else min(last, stop)
                )
            first = last

    @cached_property
    def _input(self) -> pa.NativeFile:
        file = open_input(self.source)
        if isinstance(file, RemoteInput):
            file.file.streams = False  # a footer, and then columns of row groups
        return file

    @cached_property
    def _file(self) -> pq.ParquetFile | str:
        """The open file, or what is wrong with it."""
        try:
            return pq.ParquetFile(
                self._input,
                buffer_size=_PAGE_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            self.raise_if_io(error)
            return f"not a readable Parquet file (truncated?): {error}"

    def _row_group(
        self, file: pq.ParquetFile, group: int, row: int, start: int, stop: int
    ) -> Iterator[Rows | LostRows]:
        bytes_a_row = self.source.size / max(file.metadata.num_rows, 1)
        try:
            rows = self._rows_a_slice(file, group)
            for batch in file.iter_batches(rows, [group], self._columns, use_threads=False):
                first, last = max(start - row, 0), min(stop - row, batch.num_rows)
                if first < last:
                    input_bytes = int(bytes_a_row * (last - first))
                    yield self.rows(batch, first, last, first_row=row, input_bytes=input_bytes)
                row += batch.num_rows
                if row >= stop:
                    return
            raise pa.ArrowInvalid(f"it ends at row {row}")
        except (pa.ArrowException, OSError) as error:
            self.raise_if_io(error)
            lost = max(row, start)
            message = f"row group {group} cannot be read: {error}"
            yield LostRows(lost, stop - lost, message, int(bytes_a_row * (stop - lost)))

    @property
    def _columns(self) -> list[str] | None:
        """None: all of them."""
        return [".".join(path) for path in self.paths] if self.path else None

    def _rows_a_slice(self, file: pq.ParquetFile, group: int) -> int:
        metadata = file.metadata.row_group(group)
        size: int = max(metadata.total_byte_size, 1)
        rows: int = metadata.num_rows
        if isinstance(self._input, RemoteInput):
            self._input.file.focus([])
            self._input.file.streams = size <= _SMALL_GROUP_BYTES  # so that the next group is on its way
        if size > _SMALL_GROUP_BYTES:
            size = self._column_bytes(file, group)
            rows = _SLICE_BYTES * rows // size
        if size <= _DICTIONARY_BYTES + _INDEX_BYTES * metadata.num_rows:
            rows = min(rows, _MAX_SPELLED_OUT_BYTES // min(size, _DICTIONARY_BYTES))
        return max(min(rows, _MAX_SLICE_ROWS), 1)

    def _column_bytes(self, file: pq.ParquetFile, group: int) -> int:
        """The size of the columns that are read of a row group, as stored but not compressed."""
        # In a corrupt footer, pyarrow's look at a column's metadata ends the process; reading a row raises an error.
        next(file.iter_batches(1, [group], self._columns, use_threads=False), None)
        metadata = file.metadata.row_group(group)
        size = 0
        regions = []
        for i, leaf in enumerate(file.schema):
            if self._columns is None or any(f"{leaf.path}.".startswith(f"{name}.") for name in self._columns):
                column = metadata.column(i)
                size += int(column.total_uncompressed_size)
                start = column.dictionary_page_offset or column.data_page_offset
                regions.append((start, start + column.total_compressed_size))
        if isinstance(self._input, RemoteInput):
            self._input.file.focus(regions)
        return max(size, 1)
