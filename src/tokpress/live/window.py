"""The tokens that were encoded and not delivered yet, and where in the inputs they come from.

In: encoded batches, one after the other. Out: rows of tokens, the bounds of the documents in them, and at any time the
`Place` of the first token that is still there. It holds about a batch of text's tokens and a sequence.
"""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from tokpress.batches import Ids, Int64s, TextBatch, TokenBatch
from tokpress.errors import InputError
from tokpress.loader.memory.ranges import Segments, cut_at_documents
from tokpress.records import EMPTY, Count


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a sequence begins: a token of a document of the inputs. From here on they are read again."""

    epoch: Count = 0
    input: Count = 0  # index of the file
    position: Count = 0  # of the document there: byte offset of its record, or row
    skip: Count = 0  # tokens of the document that stand before
    doc: Count = 0  # documents before it, in this epoch
    rejects: Count = 0  # bad records before it, in this epoch


class Window:
    """Sequences have `width` tokens; one begins every `stride` tokens."""

    def __init__(self, place: Place, *, width: int, stride: int) -> None:
        self._width, self._stride = width, stride
        self._epoch = place.epoch
        self._ids: Ids = np.empty(0, np.uint32)
        # Of the documents that are not all gone: where they end, counted from the first token here, and where they stand.
        self._ends: Int64s = np.empty(0, np.int64)
        self._inputs: Int64s = np.empty(0, np.int64)
        self._positions: Int64s = np.empty(0, np.int64)
        self._after = place.input, place.position  # where the next document stands
        self._to_skip = place.skip
        self._skipped = 0  # tokens of the first document that are gone
        self._docs, self._rejects = place.doc, place.rejects
        self._bad: deque[tuple[int, int, int]] = deque()  # input, position, how many: bad records not passed yet

    @property
    def docs_read(self) -> int:
        return self._docs + len(self._ends)

    @property
    def rejects_read(self) -> int:
        return self._rejects + sum(count for *_, count in self._bad)

    @property
    def tokens(self) -> int:
        return len(self._ids)

    @property
    def sequences(self) -> int:
        """Whole ones."""
        return max((len(self._ids) - self._width) // self._stride + 1, 0)

    def append(self, batch: TextBatch, tokens: TokenBatch) -> None:
        """The documents that follow; `tokens` are those of `batch`."""
        self._ends = np.concatenate((self._ends, len(self._ids) + tokens.ends))
        self._ids = np.concatenate((self._ids, tokens.ids)) if len(self._ids) else tokens.ids
        self._inputs = np.concatenate((self._inputs, batch.sources))
        self._positions = np.concatenate((self._positions, batch.positions))
        self._after = batch.input, batch.next_position
        self._bad += [(bad.input, bad.position, bad.records) for bad in batch.rejects if bad.reason != EMPTY]
        if self._to_skip and len(tokens):
            if tokens.ends[0] < self._to_skip:
                raise InputError(
                    f"the document at {batch.positions[0]:,} of input {batch.sources[0]} has {tokens.ends[0]:,} tokens, but "
                    f"{self._to_skip:,} of it were delivered before: it was changed. Put the old inputs back."
                )
            self.drop(self._to_skip)
            self._to_skip = 0

    def rows(self, count: int) -> Ids:
        """The first sequences, as a view."""
        shape = count, self._width
        return np.lib.stride_tricks.as_strided(
            self._ids, shape, (self._stride * self._ids.itemsize, self._ids.itemsize)
        )

    def segments(self, count: int) -> Segments:
        """Which documents stand where in them."""
        numbers = np.arange(count, dtype=np.int64)
        starts = numbers * self._stride + self._skipped
        rows, columns, lengths, docs, offsets = cut_at_documents(
            self._ends + self._skipped, numbers, np.zeros_like(numbers), starts, starts + self._width
        )
        return Segments(rows, columns, lengths, docs + self._docs, offsets)

    def drop_sequences(self, count: int) -> None:
        self.drop(count * self._stride)

    def drop(self, tokens: int) -> None:
        gone = int(np.searchsorted(self._ends, tokens, "right"))  # documents
        begins = int(self._ends[gone - 1]) if gone else -self._skipped
        self._skipped = tokens - begins
        self._docs += gone
        self._ids = self._ids[tokens:]
        self._ends = self._ends[gone:] - tokens
        self._inputs, self._positions = self._inputs[gone:], self._positions[gone:]
        while self._bad and self._bad[0][:2] < self._here():
            self._rejects += self._bad.popleft()[2]

    def _here(self) -> tuple[int, int]:
        """Where the document of the first token stands, or the next one to come."""
        return (int(self._inputs[0]), int(self._positions[0])) if len(self._ends) else self._after

    def place(self) -> Place:
        """Of the first token that is still here, or of the next one to come."""
        here = self._here()
        return Place(
            epoch=self._epoch,
            input=here[0],
            position=here[1],
            skip=self._skipped if len(self._ends) else self._to_skip,
            doc=self._docs,
            rejects=self._rejects,
        )
