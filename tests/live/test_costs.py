"""From which size on a pool pays."""

from __future__ import annotations

import numpy as np
import pytest
from engines import samples
from engines.fuzz import unhurried
from hypothesis import given
from hypothesis import strategies as st

from tokpress.live.costs import Costs, bounds_of, measure_costs

seconds = st.floats(1e-9, 1.0)


@unhurried
@given(call=seconds, byte=seconds, handover=seconds, size=st.integers(0, 10**12), texts=st.integers(0, 10**6))
def test_one_worker_never_gets_parts(call: float, byte: float, handover: float, size: int, texts: int) -> None:
    assert Costs(call, byte, handover).parts(size, texts, workers=1) == 1


@unhurried
@given(call=seconds, byte=seconds, handover=seconds, texts=st.integers(2, 1000), workers=st.integers(2, 64))
def test_below_the_crossover_it_is_a_plain_call(
    call: float, byte: float, handover: float, texts: int, workers: int
) -> None:
    costs = Costs(call, byte, handover)
    assert costs.parts(int(costs.crossover_bytes * 0.99) - 2, texts, workers) == 1
    assert costs.parts(int(costs.crossover_bytes * 1.01) + 1, texts, workers) >= 2


@unhurried
@given(size=st.integers(0, 10**9), texts=st.integers(1, 1000), workers=st.integers(2, 64))
def test_a_part_is_worth_its_handing_over(size: int, texts: int, workers: int) -> None:
    costs = Costs(call=50e-6, byte=0.25e-6, handover=50e-6)
    parts = costs.parts(size, texts, workers)
    assert 1 <= parts <= min(texts, 4 * workers)
    assert parts == 1 or size * costs.byte / parts >= 4 * (costs.call + costs.handover)


def test_are_measured() -> None:
    costs = measure_costs(samples.reference("bytes"), handover=1e-3)
    assert costs.call > 0
    assert costs.byte > 0
    assert costs.parts(10_000, 100, workers=8) == 1  # to copy so few bytes is never worth a handover


class TestParts:
    @pytest.mark.parametrize(
        ("sizes", "parts", "expected"),
        [
            ([7900, 8100], 2, [(0, 1), (1, 2)]),  # the first is the smaller half
            ([8100, 7900], 2, [(0, 1), (1, 2)]),
            ([1] * 8, 8, [(i, i + 1) for i in range(8)]),
            ([10, 1, 1], 2, [(0, 1), (1, 3)]),
            ([1, 1, 10], 2, [(0, 2), (2, 3)]),
            ([100], 4, [(0, 1)]),
            ([0, 0, 0], 2, [(0, 3)]),
        ],
    )
    def test_have_about_as_many_bytes_each(self, sizes: list[int], parts: int, expected: list[tuple[int, int]]) -> None:
        for first in (0, 1000):  # a slice begins anywhere in its buffer
            starts = np.cumsum([first, *sizes])
            assert list(bounds_of(parts, starts)) == expected

    @given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(2, 9))
    def test_hold_every_text_once(self, sizes: list[int], parts: int) -> None:
        bounds = list(bounds_of(parts, np.cumsum([0, *sizes])))
        assert [i for first, last in bounds for i in range(first, last)] == list(range(len(sizes)))
        assert len(bounds) <= parts
        heaviest = max(sum(sizes[first:last]) for first, last in bounds)
        assert heaviest <= sum(sizes) / parts + max(sizes)
