"""Runs of documents: cut by tokens and by number, never inside a document."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpress.formats import rows
from tokpress.formats.rows import DocRun


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 20), max_size=40), most=st.integers(1, 30))
def test_runs_cover_all_documents_and_hold_as_many_as_fit(lengths: list[int], most: int) -> None:
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    runs = DocRun(0, 0, len(lengths), 0, total).cut(ends, most)
    assert [doc for run in runs for doc in range(run.first, run.last)] == list(range(len(lengths)))
    assert sum(run.tokens for run in runs) == total
    for run in runs:
        assert run.tokens == sum(lengths[run.first : run.last])
        assert run.tokens <= most or run.last - run.first == 1
    for run, following in pairwise(runs):
        assert run.tokens + lengths[following.first] > most


def test_documents_without_tokens_fill_a_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is made of a run is bounded, whatever is in it."""
    monkeypatch.setattr(rows, "_MOST_DOCS", 4)
    runs = DocRun(0, 0, 10, 0, 0).cut(np.zeros(10, np.int64), 100)
    assert [run.last - run.first for run in runs] == [4, 4, 2]
