"""Arrow streams as Hugging Face `datasets` keeps them: a row a document, or a row a sequence.

In: a split. Out: `SPLIT/data-00000-of-00004.arrow`, ... with `dataset_info.json` and `state.json`, and `dataset_dict.json`
above them: `datasets.load_from_disk(OUT)` gives all splits, `load_from_disk(OUT/train)` one.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pyarrow as pa

from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.tables import TableFile, table_files
from tokpress.formats.writing import BLOCK_BYTES, PartWriter
from tokpress.storage.arrow_file import arrow_file
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_FILE_BYTES = 256 * 10**6


class ArrowFormat(Format):
    opened_with = 'datasets.load_from_disk("{out}")'
    seq_len = "may"
    holds_masks = True

    def parts(self, export: Export) -> list[Part]:
        parts = []
        for split, store in export.splits.items():
            files = table_files(export, store, _FILE_BYTES)
            for number, file in enumerate(files):
                name = f"{split}/data-{number:05d}-of-{len(files):05d}.arrow"
                parts.append(Part(f"{split}-{number:05d}", file.bytes, _file(export, store, file, name)))
        return parts

    def index(self, export: Export, written: dict[str, Written]) -> dict[str, bytes]:
        described: dict[str, bytes] = {}
        for split in export.splits:
            parts = [part for part in written.values() if part.note["split"] == split]
            names = [name.rpartition("/")[2] for part in parts for name in part.files]
            key = hashlib.sha256(msgspec.json.encode((export.store.fingerprint, export.options, split))).hexdigest()[
                :16
            ]
            state: dict[str, Any] = {
                "_data_files": [{"filename": name} for name in names],
                "_fingerprint": key,
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": split,
            }
            # Features are left out: they are read from the Arrow schema, whatever the version of `datasets` calls a list.
            info = {"citation": "", "description": "", "features": None}
            described |= {f"{split}/dataset_info.json": _json(info), f"{split}/state.json": _json(state)}
        return described | {"dataset_dict.json": _json({"splits": list(export.splits)})}


def _json(record: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2)


def _file(export: Export, store: Store, rows: TableFile, name: str) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        with part.open(name) as file:
            writer = pa.ipc.new_stream(arrow_file(file), rows.schema)
            for batch in rows.batches(BLOCK_BYTES):
                writer.write_batch(batch)
                advance(batch.nbytes)
            writer.close()
        return part.receipt(split=store.split_name, rows=rows.rows)

    return write
