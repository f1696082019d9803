"""Pieces assigned to sequences, where numbers no longer fit into 16 or 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tokpress.packing.assignment import number_dtype
from tokpress.packing.bestfit import BestFitPacking
from tokpress.packing.planner import write_plan

from .conftest import MakeStore
from .stores import all_pieces


@pytest.mark.parametrize("seq_len", [65_535, 65_536, 100_000])
def test_each_token_is_in_one_sequence_whatever_bits_a_length_needs(make_store: MakeStore, seq_len: int) -> None:
    """Lengths are sorted as 16-bit numbers only if the longest of them is one."""
    store = make_store([[1, seq_len, 3, seq_len - 1], [2 * seq_len + 7, 2, seq_len]])
    write_plan(store, seq_len=seq_len)
    packing = BestFitPacking(store, seq_len=seq_len)
    pieces = all_pieces(packing)
    order = np.argsort(pieces.starts)
    assert pieces.starts[order].tolist() == [0, *pieces.stops[order].tolist()[:-1]]
    assert int(pieces.stops.max()) == store.num_tokens
    assert np.bincount(pieces.rows, pieces.stops - pieces.starts).max() == seq_len
    assert len(packing) == 6  # four are full, one has all but one of its tokens and the 1, one has 7, 3 and 2


def test_pieces_are_numbered_with_32_bits_as_long_as_their_count_is_such_a_number() -> None:
    assert number_dtype(2**32 - 1) == np.dtype("<u4")
    assert number_dtype(2**32) == np.dtype("<i8")
