"""What flows between the rooms, and the arithmetic on it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import places


@given(length=st.integers(0, 3000), share=st.sampled_from([0, 0.001, 0.01, 0.1, 1]), seed=st.integers(0, 2**32 - 1))
def test_places_are_those_that_are_set(length: int, share: float, seed: int) -> None:
    flags = np.random.default_rng(seed).random(length) < share
    assert places(flags).tolist() == np.flatnonzero(flags).tolist()


@pytest.mark.parametrize("at", [0, 7, 8, 1599, 1600, 1606])
def test_a_single_one_is_found_wherever_it_is(at: int) -> None:
    flags = np.zeros(1607, np.bool_)
    flags[at] = True
    assert places(flags).tolist() == [at]
