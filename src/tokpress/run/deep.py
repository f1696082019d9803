"""`verify --deep`: is what stands in the store still what the sources and the reference tokenizer say?

In: a store and a number of documents. Out: a problem for every document that differs. The documents are read again from
where the store says they come from and encoded with the reference engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokpress.batches import TextBatch
from tokpress.config import ReadConfig
from tokpress.engines.framing import Frame
from tokpress.errors import InputError
from tokpress.sources.base import STDIN, open_reader
from tokpress.store.manifest import SHARDS
from tokpress.store.reader import Store
from tokpress.store.verify import Problem

_BATCH_BYTES = 64 * 1024


def reencode_sample(store: Store, docs: int) -> Iterator[Problem]:
    """Compares up to `docs` documents, evenly spaced over the store."""
    manifest = store.manifest
    frame = Frame(manifest.bos_id, manifest.eos_id, manifest.tokenizer.vocab_size)
    for i in np.unique(np.linspace(0, store.num_docs - 1, min(docs, store.num_docs)).astype(int)).tolist():
        path, position = store.where(i)
        if path == STDIN:
            continue  # cannot be read again
        shard = f"{SHARDS}/{store.shard_of(i)}.bin"
        try:
            batch = _read_one(store, path, position)
        except InputError as error:
            yield Problem(path, f"document {i:,} cannot be compared: {error}")
            continue
        if batch is None:
            yield Problem(path, f"holds no document at position {position:,} any more, where document {i:,} came from")
            continue
        expected = frame.apply(store.engine.encode(batch.text[:1])).ids
        if not np.array_equal(expected, store.doc(i)):
            yield Problem(shard, f"document {i:,} is not what the reference makes of {Path(path).name} at {position:,}")


def _read_one(store: Store, path: str, position: int) -> TextBatch | None:
    index = next(k for k, source in enumerate(store.plan.inputs) if source.path == path)
    options = store.plan.options
    config = ReadConfig(
        text_field=options["text_field"], separator=options["separator"], max_doc_bytes=options["max_doc_bytes"]
    )
    reader = open_reader(store.plan.inputs[index], index, config, _BATCH_BYTES)
    batch = next(reader.read(position), None)
    return batch if batch is not None and len(batch) and batch.positions[0] == position else None
