"""Which samples make up a step, and how many steps are planned together."""

from __future__ import annotations

from itertools import islice

import pytest

from tokpress.loader.order.steps import StepHistory
from tokpress.loader.state import BatchState


@pytest.mark.parametrize(("drop_last", "last"), [(True, None), (False, 2)])
def test_a_sample_belongs_to_a_step_or_is_left_over(drop_last: bool, last: int | None) -> None:
    history = StepHistory([BatchState(sample=0, step=0, size=10)], 25, drop_last=drop_last)
    assert [history.step_of(sample) for sample in (0, 9, 10, 19, 20, 24)] == [0, 0, 1, 1, last, last]


@pytest.mark.parametrize("total", [None, 10**6])
def test_more_and_more_steps_are_planned_together_up_to_a_bound(total: int | None) -> None:
    """With no end in sight, too: a plan takes memory for each of its samples."""
    history = StepHistory([BatchState(sample=0, step=0, size=10)], total, drop_last=True)
    ranges = [(steps.start, steps.stop) for steps in islice(history.step_ranges(5, most=6), 6)]
    assert ranges == [(5, 6), (6, 8), (8, 12), (12, 18), (18, 24), (24, 30)]


def test_what_is_no_step_is_an_error() -> None:
    history = StepHistory([BatchState(sample=0, step=0, size=10)], 25, drop_last=True)
    assert history.samples_of(1) == (10, 20)
    for step, has in ((-1, "2 steps"), (2, "2 steps"), (100, "2 steps")):
        with pytest.raises(IndexError, match=f"no step {step}: this loader has {has}"):
            history.samples_of(step)
    endless = StepHistory([BatchState(sample=0, step=0, size=10)], None, drop_last=True)
    assert endless.samples_of(100) == (1000, 1010)
    with pytest.raises(IndexError, match="has no end"):
        endless.samples_of(-1)
