"""Documents end to end, cut every `seq_len` tokens.

In: a store's split. Out: sequence i is tokens [i * stride, i * stride + seq_len) of its stream, across documents and shards.
No index, no padding; documents are cut wherever a sequence happens to end.
"""

from __future__ import annotations

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.packing.base import Pieces, check_seq_len, check_sequences
from tokpress.packing.waste import Waste, fill_classes
from tokpress.store.reader import Store


class ConcatPacking:
    """`overlap`: tokens that neighbouring sequences share. A loader that shifts targets itself takes sequences of
    `seq_len + 1` with an overlap of 1: then every token but the first is a target exactly once.

    `keep_last`: the tokens that are left at the end make one more sequence, padded; else they are left out.
    """

    name: str = "concat"

    def __init__(self, store: Store, *, seq_len: int, overlap: int = 0, keep_last: bool = False) -> None:
        check_seq_len(seq_len)
        if not 0 <= overlap < seq_len:
            raise UsageError(
                f"--overlap {overlap}: sequences of {seq_len:,} tokens can share 0 to {seq_len - 1:,} of them. "
                "Choose a smaller overlap, or a larger --seq-len."
            )
        self.store = store
        self.seq_len = seq_len
        self.overlap = overlap
        self.keep_last = keep_last
        self._stride = seq_len - overlap
        self._tokens = store.num_tokens
        whole = (self._tokens - seq_len) // self._stride + 1 if self._tokens >= seq_len else 0
        covered = (whole - 1) * self._stride + seq_len if whole else 0
        self._count = whole + int(keep_last and covered < self._tokens)

    def __len__(self) -> int:
        return self._count

    def pieces(self, sequences: Int64s) -> Pieces:
        check_sequences(sequences, self._count)
        starts = sequences.astype(np.int64) * self._stride
        stops = np.minimum(starts + self.seq_len, self._tokens)
        rows = np.arange(len(sequences), dtype=np.int64)
        return Pieces(rows, np.zeros_like(rows), starts, stops)

    def sequences_of(self, doc: int) -> Int64s:
        starts, stops = self.store.spans(np.array([doc], np.int64))
        first, last = self._first_and_last(starts, stops)
        return np.arange(first[0], last[0] + 1, dtype=np.int64)

    def _first_and_last(self, starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
        """The sequences in which tokens of these spans stand; none where the last is before the first."""
        first = np.maximum((starts - self.seq_len) // self._stride + 1, 0)
        last = np.minimum((stops - 1) // self._stride, self._count - 1)
        return first, np.where(stops > starts, last, first - 1)

    def waste(self) -> Waste:
        """Counts documents cut by going through all document ends once."""
        cut = cut_that_fit = begin = 0
        for ends in self.store.end_blocks():
            starts = np.concatenate(([begin], ends[:-1]))
            begin = int(ends[-1])
            # The last sequence that begins no later than the document: if that does not hold it whole, none does.
            holder = np.minimum(starts // self._stride, self._count - 1)
            whole = (self._count > 0) & (ends <= holder * self._stride + self.seq_len)
            is_cut = (ends > starts) & ~whole
            cut += int(is_cut.sum())
            cut_that_fit += int((is_cut & (ends - starts <= self.seq_len)).sum())
        covered = min((self._count - 1) * self._stride + self.seq_len, self._tokens) if self._count else 0
        repeated = max(self._count - 1, 0) * self.overlap
        padding = self._count * self.seq_len - covered - repeated
        fill = fill_classes(np.array([self.seq_len]), self.seq_len, np.array([self._count]))
        if padding:
            fill += fill_classes(np.array([self.seq_len - padding]), self.seq_len)
            fill[-1] -= 1
        return Waste(
            method=self.name,
            seq_len=self.seq_len,
            split=self.store.split_name,
            docs=self.store.num_docs,
            tokens=self._tokens,
            sequences=self._count,
            padding=padding,
            truncated_tokens=self._tokens - covered,
            repeated_tokens=repeated,
            docs_cut=cut,
            docs_cut_that_fit=cut_that_fit,
            fill=fill.tolist(),
        )
