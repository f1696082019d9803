"""Parquet: a row a document, or a row a sequence.

In: a split. Out: `SPLIT/00000.parquet`, ...: zstd, row groups of about 64 MB of ids. Ids are not put into dictionaries and
have no statistics: for tokens both take time and give nothing.
"""

from __future__ import annotations

import pyarrow.parquet as pq

from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.tables import TableFile, table_files
from tokpress.formats.writing import PartWriter
from tokpress.storage.arrow_file import arrow_file
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_FILE_BYTES = 256 * 10**6
_GROUP_BYTES = 64 * 10**6


class ParquetFormat(Format):
    opened_with = 'load_dataset("parquet", data_files="{out}/{split}/*.parquet")'
    seq_len = "may"
    holds_masks = True

    def parts(self, export: Export) -> list[Part]:
        return [
            Part(f"{split}-{number:05d}", file.bytes, _file(export, store, file, number))
            for split, store in export.splits.items()
            for number, file in enumerate(table_files(export, store, _FILE_BYTES))
        ]


def _file(export: Export, store: Store, rows: TableFile, number: int) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        with part.open(f"{store.split_name}/{number:05d}.parquet") as file:
            writer = pq.ParquetWriter(
                arrow_file(file),
                rows.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                write_statistics=False,
            )
            for batch in rows.batches(_GROUP_BYTES):
                writer.write_batch(batch, row_group_size=max(len(batch), 1))
                advance(batch.nbytes)
            writer.close()
        return part.receipt(split=store.split_name, rows=rows.rows)

    return write
