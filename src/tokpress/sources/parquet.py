"""Parquet -> text batches.

In: a Parquet file. Out: the text column, a few rows at a time, so that memory follows the pages and not the row group.
A row group that cannot be read is one reject that says how many rows it held; the other row groups are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from tokpress.sources.rows import LostRows, RowReader, Rows

_SLICE_BYTES = 128 * 1024  # decoded at a time; smaller slices cost speed, larger ones memory where sizes are uneven
_PAGE_BUFFER_BYTES = 1024 * 1024


class ParquetReader(RowReader):
    def probe(self, fraction: float) -> int:
        return 0 if isinstance(self._file, str) else int(self._file.metadata.num_rows * fraction)

    def slices(self, start: int, stop: int | None) -> Iterator[Rows | LostRows]:
        file = self._file
        if isinstance(file, str):
            yield LostRows(0, 0, file, self.source.size)
            return
        self.column_of(file.schema_arrow)
        first = 0
        for group in range(file.metadata.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if last > start and (stop is None or first < stop):
                yield from self._row_group(
                    file, group, first, max(first, start), last if stop is None else min(last, stop)
                )
            first = last

    @cached_property
    def _file(self) -> pq.ParquetFile | str:
        """The open file, or what is wrong with it."""
        try:
            return pq.ParquetFile(
                self.source.path, buffer_size=_PAGE_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
        except (pa.ArrowInvalid, OSError) as error:
            self.raise_if_io(error)
            return f"not a readable Parquet file (truncated?): {error}"

    def _row_group(
        self, file: pq.ParquetFile, group: int, row: int, start: int, stop: int
    ) -> Iterator[Rows | LostRows]:
        bytes_a_row = self.source.size / max(file.metadata.num_rows, 1)
        rows = self._rows_a_slice(file, group)
        batches = file.iter_batches(rows, [group], [".".join(self.path)], use_threads=False)
        try:
            for batch in batches:
                first, last = max(start - row, 0), min(stop - row, batch.num_rows)
                if first < last:
                    column = self.take_field(batch.column(0))[first:last]
                    yield Rows(column, row + first, int(bytes_a_row * (last - first)))
                row += batch.num_rows
                if row >= stop:
                    return
        except (pa.ArrowInvalid, OSError) as error:
            self.raise_if_io(error)
            lost = max(row, start)
            message = f"row group {group} cannot be read: {error}"
            yield LostRows(lost, stop - lost, message, int(bytes_a_row * (stop - lost)))

    def _rows_a_slice(self, file: pq.ParquetFile, group: int) -> int:
        metadata = file.metadata.row_group(group)
        names = [metadata.column(i).path_in_schema for i in range(metadata.num_columns)]
        size = metadata.column(names.index(".".join(self.path))).total_uncompressed_size
        rows: int = min(max(_SLICE_BYTES * metadata.num_rows // max(size, 1), 1), 4096)
        return rows
