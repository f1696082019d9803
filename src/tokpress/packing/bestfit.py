"""Documents that fit are never cut: best-fit decreasing, planned once and stored.

In: a store's split and its plan. Out: sequences of whole documents, next to no padding. A document longer than `seq_len`
is split: pieces of `seq_len` tokens, each a sequence of its own, and a rest that is packed like a document; or truncated.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.packing.base import Pieces, check_seq_len, check_sequences
from tokpress.packing.plan import LongDocs, PlanKey, StoredPlan
from tokpress.packing.waste import Waste
from tokpress.store.reader import Store

METHOD = "bestfit"


class BestFitPacking:
    """Opens the plan that `tokpress pack` made; raises StoreError, with the command, if there is none that matches.

    `long_docs`: what becomes of a document longer than `seq_len`. "split" keeps every token, "truncate" its first `seq_len`.
    """

    name: str = METHOD

    def __init__(self, store: Store, *, seq_len: int, long_docs: LongDocs = "split") -> None:
        self.store = store
        self.seq_len = seq_len
        self.long_docs = long_docs
        self._plan: StoredPlan | None = None
        self._count = self.plan.index.sequences

    @property
    def plan(self) -> StoredPlan:
        if self._plan is None:
            self._plan = StoredPlan(self.store, plan_key(self.store, seq_len=self.seq_len, long_docs=self.long_docs))
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        """Maps are not pickled: the other process opens its own."""
        return self.__dict__ | {"_plan": None}

    def __len__(self) -> int:
        return self._count

    def pieces(self, sequences: Int64s) -> Pieces:
        check_sequences(sequences, self._count)
        plan = self.plan
        stops = plan.ends[sequences]
        counts = stops - np.where(sequences > 0, plan.ends[sequences - 1], 0)
        if len(counts) and not (
            counts.min() >= 1 and counts.max() <= self.seq_len and stops.max() <= plan.index.pieces and stops.min() >= 1
        ):
            raise plan.damaged("ends.bin", "a sequence has no pieces, or some that are not there")
        rows = np.repeat(np.arange(len(sequences)), counts)
        up_to = np.cumsum(counts)  # pieces of this row and those above it
        places = np.arange(len(rows)) + np.repeat(stops - up_to, counts)
        starts, piece_stops = self._spans(plan.order[places])
        columns = _before(piece_stops - starts)
        columns -= np.repeat(columns[up_to - counts], counts)
        if (columns + piece_stops - starts > self.seq_len).any():
            raise plan.damaged("order.bin", "a sequence holds more than fits into it")
        return Pieces(rows, columns, starts, piece_stops)

    def _spans(self, pieces: Any) -> tuple[Int64s, Int64s]:
        """Where these pieces start and stop in the stream."""
        plan = self.plan
        numbers = pieces.astype(np.int64)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < plan.index.pieces):
            raise plan.damaged("order.bin", "it names a piece that is not there")
        starts = plan.starts[numbers]
        nexts = plan.starts[numbers + 1]
        if (starts < 0).any() or (nexts <= starts).any() or (nexts > self.store.num_tokens).any():
            raise plan.damaged("starts.bin", "a piece is not where tokens are")
        return starts, np.minimum(nexts, starts + self.seq_len)

    def sequences_of(self, doc: int) -> Int64s:
        plan = self.plan
        starts, stops = self.store.spans(np.array([doc], np.int64))
        first, last = np.searchsorted(plan.starts[:-1], [starts[0], stops[0]])
        sequences: Int64s = np.unique(plan.sequences[first:last]).astype(np.int64)
        if len(sequences) and not (sequences[0] >= 0 and sequences[-1] < self._count):
            raise plan.damaged("sequences.bin", "it names a sequence that is not there")
        return sequences

    def waste(self) -> Waste:
        """As counted when the plan was made."""
        return self.plan.index.waste


def plan_key(store: Store, *, seq_len: int, long_docs: LongDocs = "split") -> PlanKey:
    check_seq_len(seq_len)
    if long_docs not in get_args(LongDocs):
        raise UsageError(f"--long-docs {long_docs!r} is not known. Choose {' or '.join(get_args(LongDocs))}.")
    return PlanKey(
        fingerprint=store.fingerprint, split=store.split_name, method=METHOD, seq_len=seq_len, long_docs=long_docs
    )


def _before(lengths: Int64s) -> Int64s:
    """The sum of all lengths before each."""
    sums: Int64s = np.cumsum(lengths) - lengths
    return sums
