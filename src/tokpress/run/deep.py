"""`verify --deep`: is what stands in the store still what the sources and the reference tokenizer say?

In: a store and a number of documents. Out: a problem for every document that differs. The documents are read again from
where the store says they come from and encoded with the reference engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import TextBatch
from tokpress.config import ReadConfig
from tokpress.engines.framing import Frame
from tokpress.errors import InputError
from tokpress.sources.base import STDIN, Input, open_reader
from tokpress.store.manifest import SHARDS
from tokpress.store.reader import Store
from tokpress.store.verify import Problem

_BATCH_BYTES = 256 * 1024


class Reencoded(msgspec.Struct, frozen=True, kw_only=True):
    docs: int  # that were compared
    why_not: str = ""  # others could not be
    problems: list[Problem]


def reencode_sample(store: Store, docs: int) -> Reencoded:
    """Compares up to `docs` documents, evenly spaced over the store."""
    manifest = store.manifest
    frame = Frame(manifest.bos_id, manifest.eos_id, manifest.tokenizer.vocab_size)
    inputs = {source.path: (index, source) for index, source in enumerate(store.plan.inputs)}
    chosen = np.unique(np.linspace(0, store.num_docs - 1, min(docs, store.num_docs)).astype(int)).tolist()
    compared, why_not = 0, ""
    problems = []
    for path, group in groupby(chosen, key=lambda i: store.where(i)[0]):
        if path == STDIN or not inputs[path][1].is_text:
            why_not = "standard input cannot be read twice" if path == STDIN else "its sources are tokens, not text"
            continue
        wanted = {store.where(i)[1]: i for i in group}
        try:
            for position, text in _texts(store, *inputs[path], list(wanted)):
                i = wanted[position]
                compared += 1
                if text is None:
                    message = f"holds no document at position {position:,} any more, where document {i:,} came from"
                    problems.append(Problem(path, message))
                elif not np.array_equal(frame.apply(store.engine.encode(text)).ids, store.doc(i)):
                    message = f"document {i:,} is not what the reference makes of {Path(path).name} at {position:,}"
                    problems.append(Problem(f"{SHARDS}/{store.shard_of(i)}.bin", message))
        except InputError as error:
            problems.append(Problem(path, f"its documents cannot be compared: {error}"))
    return Reencoded(docs=compared, why_not=why_not, problems=problems)


def _texts(
    store: Store, index: int, source: Input, positions: list[int]
) -> Iterator[tuple[int, pa.LargeStringArray | None]]:
    """The documents at these positions, None where there is none."""
    options = store.plan.options
    config = ReadConfig(
        text_field=options["text_field"], separator=options["separator"], max_doc_bytes=options["max_doc_bytes"]
    )
    reader = open_reader(source, index, config, _BATCH_BYTES)
    if source.compression is None:
        for position in positions:
            yield position, _text_at(next(reader.read(position), None), position)
        return
    waiting = deque(positions)  # a compressed file is read once, not from its start for every document
    for batch in reader.read(positions[0]):
        while waiting and waiting[0] < batch.next_position:
            position = waiting.popleft()
            yield position, _text_at(batch, position)
        if not waiting:
            return
    yield from ((position, None) for position in waiting)


def _text_at(batch: TextBatch | None, position: int) -> pa.LargeStringArray | None:
    if batch is None:
        return None
    at = int(np.searchsorted(batch.positions, position))
    found = at < len(batch) and batch.positions[at] == position
    return batch.text[at : at + 1] if found else None
