"""A document a row: what is longer is truncated, what is shorter is padded.

In: a store's split. Out: sequence i is document i. No index but the store's own document ends. For supervised data and for
evaluation, where documents must not share a row; for anything else the padding is expensive.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.packing.base import Pieces, check_seq_len, check_sequences
from tokpress.packing.waste import FILL_CLASSES, Waste, fill_classes
from tokpress.store.reader import Store

Side = Literal["left", "right"]


class PadPacking:
    """`padding_side`: where a short document's row has its padding. `truncation_side`: which end of a long one is lost."""

    name: str = "pad"

    def __init__(
        self, store: Store, *, seq_len: int, padding_side: Side = "right", truncation_side: Side = "right"
    ) -> None:
        check_seq_len(seq_len)
        for option, side in (("--padding-side", padding_side), ("--truncation-side", truncation_side)):
            if side not in ("left", "right"):
                raise UsageError(f"{option} {side!r} is no side. Choose left or right.")
        self.store = store
        self.seq_len = seq_len
        self.padding_side = padding_side
        self.truncation_side = truncation_side

    def __len__(self) -> int:
        return self.store.num_docs

    def pieces(self, sequences: Int64s) -> Pieces:
        check_sequences(sequences, len(self))
        starts, stops = self.store.spans(sequences)
        if self.truncation_side == "right":
            stops = np.minimum(stops, starts + self.seq_len)
        else:
            starts = np.maximum(starts, stops - self.seq_len)
        lengths = stops - starts
        columns = self.seq_len - lengths if self.padding_side == "left" else np.zeros_like(lengths)
        rows = np.flatnonzero(lengths)  # an empty document is a row of padding
        return Pieces(rows, columns[rows], starts[rows], stops[rows])

    def sequences_of(self, doc: int) -> Int64s:
        starts, stops = self.store.spans(np.array([doc], np.int64))
        return np.array([doc], np.int64)[: int(stops[0] > starts[0])]

    def waste(self) -> Waste:
        """Goes through all document ends once."""
        begin = kept = cut = 0
        fill = np.zeros(FILL_CLASSES, np.int64)
        for ends in self.store.end_blocks():
            lengths = np.diff(ends, prepend=begin)
            begin = int(ends[-1])
            held = np.minimum(lengths, self.seq_len)
            kept += int(held.sum())
            cut += int((lengths > self.seq_len).sum())
            fill += fill_classes(held, self.seq_len)
        return Waste(
            method=self.name,
            seq_len=self.seq_len,
            split=self.store.split_name,
            docs=self.store.num_docs,
            tokens=self.store.num_tokens,
            sequences=len(self),
            padding=len(self) * self.seq_len - kept,
            truncated_tokens=self.store.num_tokens - kept,
            docs_cut=cut,
            fill=fill.tolist(),
        )
