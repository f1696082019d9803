"""Best-fit decreasing on a histogram: lengths and how many there are of each, never the pieces themselves.

In: how many pieces there are of every length up to `seq_len`. Out: `Pattern`s: so many sequences, each filled with the same
lengths. The result is that of best-fit decreasing piece by piece (the longest first, each where the least room is left), but
pieces of one length and sequences with one room are moved together. A length makes at most three new patterns, so the
work depends on how many lengths there are and hardly on how many pieces.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from tokpress.batches import Int64s


@dataclass(frozen=True, slots=True)
class Pattern:
    """Sequences that hold the same lengths: `items` says which and how often, the longest first."""

    sequences: int
    room: int  # positions left in each
    items: tuple[tuple[int, int], ...] = ()  # (length, pieces of that length in each sequence)

    @property
    def pieces(self) -> int:
        """In each sequence."""
        return sum(each for _, each in self.items)

    def parted(self, sequences: int) -> tuple[Pattern, Pattern]:
        """So many of its sequences, and the rest of them."""
        return Pattern(sequences, self.room, self.items), Pattern(self.sequences - sequences, self.room, self.items)

    def filled(self, length: int, each: int) -> Pattern:
        """With so many pieces more in each sequence."""
        return Pattern(self.sequences, self.room - each * length, (*self.items, (length, each)))


def pack_lengths(counts: Int64s, seq_len: int) -> list[Pattern]:
    """`counts[length]` pieces of each length from 1 to `seq_len` at most -> the patterns that hold them all."""
    open_patterns = _ByRoom()
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            tightest = open_patterns.take(length)
            if tightest is None:
                tightest = Pattern(-(-left // (seq_len // length)), seq_len)
            # A sequence that took a piece and has room for another is now the tightest: it takes as many as it can.
            each = min(tightest.room // length, left)
            filled, rest = tightest.parted(min(tightest.sequences, left // each))
            left -= filled.sequences * each
            open_patterns.put(filled.filled(length, each))
            open_patterns.put(rest)
    return open_patterns.all()


class _ByRoom:
    """Patterns by the room left in their sequences."""

    def __init__(self) -> None:
        self._rooms: list[int] = []  # those that there are, ascending
        self._patterns: dict[int, list[Pattern]] = {}

    def put(self, pattern: Pattern) -> None:
        if not pattern.sequences:
            return
        if pattern.room not in self._patterns:
            insort(self._rooms, pattern.room)
            self._patterns[pattern.room] = []
        self._patterns[pattern.room].append(pattern)

    def take(self, length: int) -> Pattern | None:
        """The pattern with the least room that is enough; None if there is none."""
        at = bisect_left(self._rooms, length)
        if at == len(self._rooms):
            return None
        room = self._rooms[at]
        pattern = self._patterns[room].pop()
        if not self._patterns[room]:
            del self._rooms[at], self._patterns[room]
        return pattern

    def all(self) -> list[Pattern]:
        """In the order of their room: it follows from the histogram alone."""
        return [pattern for room in self._rooms for pattern in self._patterns[room]]
