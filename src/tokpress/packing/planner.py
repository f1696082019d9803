"""Makes the plan of a best-fit packing.

In: a store's split. Out: a stored plan. The document ends are gone through once, in blocks: they give the pieces, which are
written as they come, and the histogram. The histogram is packed, then the pieces are assigned (`assignment`), one after
the other, so that no more than two arrays are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tokpress.batches import Int64s
from tokpress.packing.assignment import Assignment, sort_by_length
from tokpress.packing.bestfit import plan_key
from tokpress.packing.patterns import Pattern, pack_lengths
from tokpress.packing.plan import LongDocs, PlanWriter
from tokpress.packing.waste import Waste, fill_classes
from tokpress.store.reader import Store

Progress = Callable[[str, float], None]  # hears what is being done, and the share of it that is
_BLOCK_PIECES = 2**18
_INT64_BYTES = 8


def write_plan(store: Store, *, seq_len: int, long_docs: LongDocs = "split", progress: Progress | None = None) -> Waste:
    """Makes the plan, or makes it anew; the caller sees to it that nobody else does at the same time."""
    progress = progress or _unheard
    key = plan_key(store, seq_len=seq_len, long_docs=long_docs)
    with PlanWriter(store.storage, key) as writer:
        cutter = Cutter(store, seq_len, long_docs, progress)
        writer.write("starts", cutter.starts())
        counts = cutter.counts
        progress("packing lengths", 0.0)
        patterns = pack_lengths(counts, seq_len)
        lengths = _lengths(writer.storage.local("starts.bin"), cutter.pieces, seq_len, progress)
        assignment = Assignment(sort_by_length(lengths, counts), counts, patterns)
        progress("assigning documents", 0.0)
        writer.write("sequences", [assignment.sequence_of()])
        writer.write("ends", [assignment.ends])
        progress("assigning documents", 0.5)
        writer.write("order", [assignment.order()])
        waste = _waste(store, seq_len, cutter, patterns)
        writer.seal(pieces=cutter.pieces, sequences=assignment.sequences, waste=waste)
    return waste


def _unheard(stage: str, share: float) -> None:
    """For callers that do not ask."""


class Cutter:
    """Cuts documents into pieces and counts them by length, while `starts` is gone through."""

    def __init__(self, store: Store, seq_len: int, long_docs: LongDocs, progress: Progress) -> None:
        self._store = store
        self._seq_len = seq_len
        self._truncate = long_docs == "truncate"
        self._progress = progress
        self.counts = np.zeros(1, np.int64)  # by length
        self.long_docs = 0

    @property
    def pieces(self) -> int:
        return int(self.counts.sum())

    @property
    def tokens(self) -> int:
        """That stand in a piece."""
        return int(self.counts @ np.arange(len(self.counts)))

    def starts(self) -> Iterator[Int64s]:
        """Where pieces start, in order, then where the stream ends."""
        begin = seen = 0
        for ends in self._store.end_blocks():
            doc_starts = np.concatenate(([begin], ends[:-1]))
            self.long_docs += int((ends - doc_starts > self._seq_len).sum())
            for starts, stops in self._cut(doc_starts, ends):
                self._count(np.minimum(stops - starts, self._seq_len))
                yield starts.astype("<i8", copy=False)
            begin = int(ends[-1])
            seen += len(ends)
            self._progress("reading document lengths", seen / self._store.num_docs)
        yield np.array([self._store.num_tokens], "<i8")

    def _cut(self, starts: Int64s, ends: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
        """Where pieces start and their documents end. An empty document has no piece."""
        if self._truncate:
            yield starts[ends > starts], ends[ends > starts]
            return
        pieces = -(-(ends - starts) // self._seq_len)
        up_to = np.cumsum(pieces)  # and with each document
        for first in range(0, int(up_to[-1]), _BLOCK_PIECES):  # one document may have any number of pieces
            number = np.arange(first, min(first + _BLOCK_PIECES, int(up_to[-1])))
            doc = np.searchsorted(up_to, number, "right")
            within = number - (up_to[doc] - pieces[doc])
            yield starts[doc] + within * self._seq_len, ends[doc]

    def _count(self, lengths: Int64s) -> None:
        counts = np.bincount(lengths, minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts


def _lengths(starts: Path, pieces: int, seq_len: int, progress: Progress) -> Iterator[Int64s]:
    """Of all pieces in the order of the stream, read back from their starts."""
    for first in range(0, pieces, _BLOCK_PIECES):
        progress("sorting by length", first / pieces)
        count = min(_BLOCK_PIECES, pieces - first)
        block = np.fromfile(starts, "<i8", count + 1, offset=first * _INT64_BYTES)
        yield np.minimum(np.diff(block), seq_len)


def _waste(store: Store, seq_len: int, cutter: Cutter, patterns: list[Pattern]) -> Waste:
    sequences = np.array([pattern.sequences for pattern in patterns], np.int64)
    held = seq_len - np.array([pattern.room for pattern in patterns], np.int64)
    return Waste(
        method="bestfit",
        seq_len=seq_len,
        split=store.split_name,
        docs=store.num_docs,
        tokens=store.num_tokens,
        sequences=int(sequences.sum()),
        padding=int(sequences.sum()) * seq_len - cutter.tokens,
        truncated_tokens=store.num_tokens - cutter.tokens,
        docs_cut=cutter.long_docs,
        fill=fill_classes(held, seq_len, sequences).tolist(),
    )
