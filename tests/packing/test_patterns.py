"""Best-fit decreasing on a histogram does what it does piece by piece."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokpress.packing.patterns import pack_lengths


def rooms_piece_by_piece(lengths: list[int], seq_len: int) -> Counter[int]:
    """The longest first, each where the least room is left that is enough: the textbook."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        enough = [room for room in rooms if room >= length]
        if enough:
            rooms.remove(min(enough))
            rooms.append(min(enough) - length)
        else:
            rooms.append(seq_len - length)
    return Counter(rooms)


def counted(lengths: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(lengths).astype(np.int64) if lengths else np.zeros(1, np.int64)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A length of sequences, and lengths of pieces: many different ones, or few of them often."""
    seq_len = draw(st.integers(1, 60))
    kinds = draw(st.lists(st.integers(1, seq_len), min_size=1, max_size=8))
    return seq_len, draw(st.lists(st.integers(1, seq_len) | st.sampled_from(kinds), max_size=120))


@given(pieces())
def test_sequences_are_as_full_as_piece_by_piece(case: tuple[int, list[int]]) -> None:
    seq_len, lengths = case
    rooms: Counter[int] = Counter()
    for pattern in pack_lengths(counted(lengths), seq_len):
        rooms[pattern.room] += pattern.sequences
    assert rooms == rooms_piece_by_piece(lengths, seq_len)


@given(pieces())
def test_every_piece_has_a_place_and_patterns_hold_what_they_say(case: tuple[int, list[int]]) -> None:
    seq_len, lengths = case
    placed: Counter[int] = Counter()
    for pattern in pack_lengths(counted(lengths), seq_len):
        assert pattern.sequences > 0
        assert sum(length * each for length, each in pattern.items) + pattern.room == seq_len
        assert pattern.pieces == sum(each for _, each in pattern.items)
        assert [length for length, _ in pattern.items] == sorted({length for length, _ in pattern.items}, reverse=True)
        for length, each in pattern.items:
            placed[length] += each * pattern.sequences
    assert placed == Counter(lengths)


@given(pieces())
def test_a_length_makes_at_most_three_patterns(case: tuple[int, list[int]]) -> None:
    """So the work is bounded by the lengths that there are, whatever the number of pieces."""
    seq_len, lengths = case
    assert len(pack_lengths(counted(lengths), seq_len)) <= 3 * len(set(lengths))
    many = counted(lengths) * 10**9 + (counted(lengths) > 0)
    assert len(pack_lengths(many, seq_len)) <= 3 * len(set(lengths))
