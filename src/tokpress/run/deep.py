"""`verify --deep`: is what stands in the store still what the sources and the reference tokenizer say?

In: a store and a number of documents. Out: a problem for every document that differs. The documents are read again from
where the store says they come from and encoded with the reference engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby

import msgspec
import numpy as np

from tokpress.batches import Mask, TextBatch
from tokpress.config import ReadConfig, SplitConfig
from tokpress.documents.frame import Frame
from tokpress.documents.shape import Shaper
from tokpress.documents.templates import reading
from tokpress.errors import InputError
from tokpress.options import stored_config
from tokpress.records import SHARDS, STDIN, Input
from tokpress.sources.base import FORMATS, open_reader
from tokpress.store.reader import Store, tokenizer_files
from tokpress.store.verify import Problem

_BATCH_BYTES = 256 * 1024


class Reencoded(msgspec.Struct, frozen=True, kw_only=True):
    docs: int  # that were compared
    why_not: str = ""  # others could not be
    problems: list[Problem]


def reencode_sample(store: Store, docs: int) -> Reencoded:
    """Compares up to `docs` documents, evenly spaced over the store."""
    again: _Again | None = None  # made when there is text to read
    inputs = {source.path: (index, source) for index, source in enumerate(store.plan.inputs)}
    chosen = np.unique(np.linspace(0, store.num_docs - 1, min(docs, store.num_docs)).astype(int)).tolist()
    compared, why_not = 0, ""
    problems = []
    for path, group in groupby(chosen, key=lambda i: store.where(i)[0]):
        if path == STDIN or inputs[path][1].format not in FORMATS:
            why_not = "standard input cannot be read twice" if path == STDIN else "its sources are tokens, not text"
            continue
        wanted = {store.where(i)[1]: i for i in group}  # of a record that was split, one document
        again = again or _Again(store)
        try:
            for position, record in _records(again.read, *inputs[path], list(wanted)):
                i = wanted[position]
                compared += 1
                if record is None:
                    message = f"holds no document at position {position:,} any more, where document {i:,} came from"
                    problems.append(Problem(path, message))
                elif not again.holds(record, i):
                    message = (
                        f"document {i:,} is not what the reference makes of {path.rpartition('/')[2]} at {position:,}"
                    )
                    problems.append(Problem(f"{SHARDS}/{store.shard_of(i)}.bin", message))
        except InputError as error:
            problems.append(Problem(path, f"its documents cannot be compared: {error}"))
    return Reencoded(docs=compared, why_not=why_not, problems=problems)


class _Again:
    """Makes documents as the build of a store made them, with the reference."""

    def __init__(self, store: Store) -> None:
        manifest, stored = store.manifest, stored_config(store.plan.options)
        # Neither kept fields nor splits are compared: they need not be read.
        read = msgspec.structs.replace(stored.read, keep=())
        config = msgspec.structs.replace(stored, read=read, split=SplitConfig())
        self.read = reading(config)
        self._store = store
        files = tokenizer_files(store.storage, manifest)
        frame = Frame(manifest.bos_id, manifest.eos_id, manifest.tokenizer.vocab_size)
        self._shaper = Shaper(config, store.plan.inputs, files, frame, store.engine)

    def holds(self, record: TextBatch, i: int) -> bool:
        """Whether document i is what is made of the record, or a part of that if it was split; its mask, too."""
        rendered = self._shaper.render(record, 1)
        docs, _ = self._shaper.shape(rendered, self._store.engine.encode(rendered.batch.text))
        parts = (docs.part(k, k + 1) for k in range(len(docs)))
        return any(
            np.array_equal(part.tokens.ids, self._store.doc(i)) and _same(part.mask, self._store.mask(i))
            for part in parts
        )


def _same(a: Mask | None, b: Mask | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def _records(
    config: ReadConfig, index: int, source: Input, positions: list[int]
) -> Iterator[tuple[int, TextBatch | None]]:
    """The records at these positions, None where there is none."""
    reader = open_reader(source, index, config, _BATCH_BYTES)
    if source.compression is None:
        for position in positions:
            yield position, _record_at(next(reader.read(position), None), position)
        return
    waiting = deque(positions)  # a compressed file is read once, not from its start for every document
    for batch in reader.read(positions[0]):
        while waiting and waiting[0] < batch.next_position:
            position = waiting.popleft()
            yield position, _record_at(batch, position)
        if not waiting:
            return
    yield from ((position, None) for position in waiting)


def _record_at(batch: TextBatch | None, position: int) -> TextBatch | None:
    if batch is None:
        return None
    at = int(np.searchsorted(batch.positions, position))
    found = at < len(batch) and batch.positions[at] == position
    return batch.part(at, at + 1) if found else None
