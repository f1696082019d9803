"""LitData's TokensLoader: chunks of ids that its reader cuts into blocks.

In: the documents of a split, end to end. Out: `SPLIT/chunk-0-0.bin`, ...: u32 1 · u32 where the ids start · u32 where they
end · ids; and `index.json`, last. The reader drops what is left of a chunk after its last whole block: with `seq_len` every
chunk but the last is a whole number of them, and nothing is lost where `TokensLoader(block_size=seq_len)` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.rows import FILE_BYTES
from tokpress.formats.writing import BLOCK_BYTES, PartWriter
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_DTYPES = {2: 20, 4: 16}  # torch.uint16; torch.int32, as there is no u32, and ids are far below 2^31
_HEADER_BYTES = 12
_ONE_TENSOR = '[1, {"type": null, "context": null, "children_spec": []}]'


class LitDataFormat(Format):
    opened_with = 'StreamingDataset("{out}/{split}", item_loader=TokensLoader(block_size={seq_len}))'
    seq_len = "may"
    methods = ("concat",)

    def parts(self, export: Export) -> list[Part]:
        parts = []
        for split, store in export.splits.items():
            block = export.options.seq_len or 1
            if store.num_tokens < block:  # no block: its reader could not start
                continue
            step = max(FILE_BYTES // (block * store.dtype.itemsize), 1) * block
            for number, start in enumerate(range(0, store.num_tokens, step)):
                stop = min(start + step, store.num_tokens)
                size = (stop - start) * store.dtype.itemsize
                parts.append(Part(f"{split}-{number:05d}", size, _chunk(export, store, start, stop, number)))
        return parts

    def index(self, export: Export, written: dict[str, Written]) -> dict[str, bytes]:
        indices = {}
        for split, store in export.splits.items():
            if store.num_tokens < (export.options.seq_len or 1):
                continue
            config = {
                "chunk_bytes": FILE_BYTES,
                "chunk_size": None,
                "compression": None,
                "data_format": [f"no_header_tensor:{_DTYPES[export.store.dtype.itemsize]}"],
                "data_spec": _ONE_TENSOR,
                "encryption": None,
                "item_loader": "TokensLoader",
            }
            chunks = [part.note["chunk"] for part in written.values() if part.note["split"] == split]
            indices[f"{split}/index.json"] = msgspec.json.encode({"chunks": chunks, "config": config})
        return indices


def _chunk(export: Export, store: Store, start: int, stop: int, number: int) -> Write:
    name = f"chunk-0-{number}.bin"

    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        size = _HEADER_BYTES + (stop - start) * store.dtype.itemsize
        part.write(f"{store.split_name}/{name}", _blocks(store, start, stop, size))
        chunk = {"chunk_bytes": size, "chunk_size": 1, "dim": stop - start, "filename": name}
        return part.receipt(split=store.split_name, chunk=chunk)

    return write


def _blocks(store: Store, start: int, stop: int, size: int) -> Iterator[Any]:
    yield np.array([1, _HEADER_BYTES, size], "<u4")
    step = BLOCK_BYTES // store.dtype.itemsize
    for first in range(start, stop, step):
        yield store.tokens(first, min(first + step, stop))
