"""Spans of characters become spans of bytes: in order, joined where they overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokpress.documents.base import in_bytes

bounds = st.tuples(st.integers(0, 12), st.integers(0, 12))


@given(text=st.text(st.sampled_from("aé字🙂"), min_size=12, max_size=12), spans=st.lists(bounds, max_size=5))
def test_the_same_text_is_in_them(text: str, spans: list[tuple[int, int]]) -> None:
    learned = {i for start, stop in spans for i in range(start, stop)}
    found = in_bytes(text, spans)
    ends = [end for span in found for end in span]
    assert ends == sorted(ends)
    assert all(start < stop for start, stop in found)
    characters = b"".join(text.encode()[start:stop] for start, stop in found).decode()
    assert characters == "".join(char for i, char in enumerate(text) if i in learned)


def test_one_inside_another_does_not_end_it() -> None:
    assert in_bytes("abcdef", [(2, 3), (0, 6)]) == [(0, 6)]
    assert in_bytes("äbcdef", [(0, 4), (1, 2), (3, 5)]) == [(0, 6)]


def test_those_that_touch_stay_two() -> None:
    assert in_bytes("abcd", [(2, 4), (0, 2)]) == [(0, 2), (2, 4)]
