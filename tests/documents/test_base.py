"""Templates that are Python render no more at a time than is asked for. Spans of characters become spans of bytes: in order,
joined where they overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.shaping import INPUT
from tokpress.batches import TextBatch, large_strings
from tokpress.documents.base import BadRecord, Text, in_bytes, render_each
from tokpress.records import BAD_TEMPLATE

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


class TestRenderEach:
    @pytest.mark.parametrize(("max_bytes", "taken"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 4), (100, 5)])
    def test_stops_with_the_document_that_reaches_the_bound(self, max_bytes: int, taken: int) -> None:
        """A bad record has no text, and takes none of it."""
        batch = TextBatch(
            text=large_strings(["ab"] * 5),
            positions=np.arange(5),
            sources=np.zeros(5, np.int32),
            input=0,
            next_position=5,
        )

        def render(i: int) -> list[Text]:
            if i == 2:
                raise BadRecord(BAD_TEMPLATE, "no")
            return [("abab", [])]

        made = render_each(batch, [INPUT], max_bytes, render)
        assert made.taken == taken
        assert made.batch.positions.tolist() == [i for i in range(taken) if i != 2]
        assert [reject.position for reject in made.batch.rejects] == [2] * (taken > 2)
