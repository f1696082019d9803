"""The fields that are kept beside the documents of a shard, as Parquet, a row a document.

In: record batches of text columns. Out: bytes that depend on the rows alone and not on how they were batched: a row group
ends with the row that fills it. And back: the row of one document.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokpress.batches import Int64s
from tokpress.storage.arrow_file import arrow_file
from tokpress.storage.base import Storage, Upload

_GROUP_BYTES = 4 * 1024**2
_ROW_BYTES = 64  # counted for a row beside its text, so that rows without text fill a group too


class KeptWriter:
    """Writes kept columns into a file that it does not close."""

    def __init__(self, file: Upload, columns: Sequence[str]) -> None:
        self._schema = pa.schema([(name, pa.large_string()) for name in columns])
        self._parquet = pq.ParquetWriter(arrow_file(file), self._schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def append(self, rows: pa.RecordBatch) -> None:
        ends = np.cumsum(_row_bytes(rows))
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + _GROUP_BYTES - self._held_bytes, "left")) + 1
            self._held.append(rows[first:last])
            self._held_bytes += int(ends[min(last, len(ends)) - 1]) - before
            first = last
            if self._held_bytes >= _GROUP_BYTES:
                self._write_group()

    def finish(self) -> None:
        if self._held:
            self._write_group()
        self._parquet.close()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held, self._schema)
        self._parquet.write_table(table, row_group_size=len(table))
        self._held, self._held_bytes = [], 0


def _row_bytes(rows: pa.RecordBatch) -> Int64s:
    sizes = np.full(len(rows), _ROW_BYTES, np.int64)
    for column in rows.columns:
        sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes


def read_kept(storage: Storage, key: str, row: int) -> dict[str, str | None]:
    """The kept fields of one document."""
    with storage.open(key) as opened, pq.ParquetFile(opened) as file:
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                values: dict[str, str | None] = file.read_row_group(group).slice(row, 1).to_pylist()[0]
                return values
            row -= rows
    raise IndexError(f"{storage.location(key)} has no such row")


def read_kept_rows(storage: Storage, key: str, first: int, last: int) -> pa.Table:
    """Of documents [first, last)."""
    with storage.open(key) as opened, pq.ParquetFile(opened) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        groups = [group for group in range(len(sizes)) if ends[group] < last and ends[group + 1] > first]
        if not groups:
            return file.schema_arrow.empty_table()
        return file.read_row_groups(groups).slice(first - int(ends[groups[0]]), last - first)


def count_kept(storage: Storage, key: str) -> int | None:
    """Rows of the file; None if it is not to be read."""
    try:
        with storage.open(key) as opened:
            rows: int = pq.read_metadata(opened).num_rows
    except (pa.ArrowException, OSError):
        return None
    return rows
