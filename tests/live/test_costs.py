"""From which size on a pool pays."""

from __future__ import annotations

from engines import samples
from engines.fuzz import unhurried
from hypothesis import given
from hypothesis import strategies as st

from tokpress.live.costs import Costs, measure_costs

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
