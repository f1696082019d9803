"""Which piece goes into which sequence, once it is known what lengths every sequence holds.

In: the pieces' lengths in the order of the stream, and patterns. Out: the arrays of a plan. The n-th piece of a length takes
the n-th place for that length, so the result follows from the lengths alone. Sequences are then put in the order in which
their longest pieces stand in the stream, and pieces within a sequence in the order of the stream: whoever reads without a
shuffle meets the corpus in about its own order, not sorted by length.

Memory: two numbers a piece (of 4 bytes, up to 4 G pieces) and 12 bytes a sequence; everything else goes in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.packing.patterns import Pattern

Numbers = npt.NDArray[Any]  # of pieces or sequences: u32, or i64 where that is too small
_BLOCK_PIECES = 2**18


def number_dtype(pieces: int) -> np.dtype[Any]:
    """What a piece's or a sequence's number is stored as; there are never more sequences than pieces."""
    return np.dtype("<u4" if pieces < 2**32 else "<i8")


def sort_by_length(blocks: Iterable[Int64s], counts: Int64s) -> Numbers:
    """The numbers of all pieces, the shortest first, in the order of the stream among those of one length."""
    pieces = int(counts.sum())
    by_length = np.empty(pieces, number_dtype(pieces))
    next_place = np.cumsum(counts) - counts  # of every length
    small = np.dtype(np.uint16 if len(counts) <= 2**16 else np.int64)  # NumPy sorts 16 bits by radix: in linear time
    first = 0
    for lengths in blocks:
        order = np.argsort(lengths.astype(small), kind="stable")
        here = np.bincount(lengths, minlength=len(counts))
        shift = next_place - (np.cumsum(here) - here)
        by_length[np.arange(len(order)) + shift[lengths[order]]] = order + first
        next_place += here
        first += len(lengths)
    return by_length


class Assignment:
    """Pieces assigned to patterns. `sequence_of` first, then `order`, which forgets what the other one needed."""

    def __init__(self, by_length: Numbers, counts: Int64s, patterns: list[Pattern]) -> None:
        self._by_length = by_length
        self._first_place = np.cumsum(counts) - counts  # of every length, in `by_length`
        self._patterns = patterns
        self.sequences = sum(pattern.sequences for pattern in patterns)
        self._numbers = np.empty(self.sequences, by_length.dtype)  # of the sequences, as the patterns list them
        self.ends = np.zeros(self.sequences, "<i8")  # cumulative pieces of the sequences

    def sequence_of(self) -> Numbers:
        """The sequence of every piece."""
        sequence_of = np.zeros(len(self._by_length), self._by_length.dtype)
        for _, pieces in self._blocks():
            sequence_of[pieces[:, 0]] = 1  # the longest of each sequence: counting these off numbers the sequences
        _count_off(sequence_of)
        for first, pieces in self._blocks():
            numbers = sequence_of[pieces[:, 0]] - 1
            self._numbers[first : first + len(pieces)] = numbers
            self.ends[numbers] = pieces.shape[1]
            sequence_of[pieces] = numbers[:, None]
        np.cumsum(self.ends, out=self.ends)
        return sequence_of

    def order(self) -> Numbers:
        """The pieces of sequence 0, of sequence 1, ...; `ends` says where each sequence's are."""
        order = np.empty(len(self._by_length), self._by_length.dtype)
        for first, pieces in self._blocks():
            pieces.sort(axis=1)
            places = self.ends[self._numbers[first : first + len(pieces)]] - pieces.shape[1]
            order[places[:, None] + np.arange(pieces.shape[1])] = pieces
        return order

    def _blocks(self) -> Iterator[tuple[int, Numbers]]:
        """The pieces of the sequences of one pattern after the other, a row a sequence, with the first row's number."""
        next_place = self._first_place.copy()
        row = 0
        for pattern in self._patterns:
            width = pattern.pieces
            left = pattern.sequences
            while left:
                rows = min(left, max(_BLOCK_PIECES // width, 1))
                pieces = np.empty((rows, width), self._by_length.dtype)
                column = 0
                for length, each in pattern.items:
                    place = next_place[length]
                    next_place[length] += rows * each
                    pieces[:, column : column + each] = self._by_length[place : next_place[length]].reshape(rows, each)
                    column += each
                yield row, pieces
                row += rows
                left -= rows


def _count_off(marks: Numbers) -> None:
    """Ones and zeros become the number of ones so far, in place."""
    total = 0
    for first in range(0, len(marks), _BLOCK_PIECES):
        block = marks[first : first + _BLOCK_PIECES]
        block[:] = np.cumsum(block, dtype=np.int64) + total
        total = int(block[-1])
