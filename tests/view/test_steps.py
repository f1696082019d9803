"""A step as the loader gives it, and when a document is seen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

import tokpress
from tokpress.view import view_step, view_when


@pytest.mark.parametrize("world_size", [1, 3])
def test_the_rows_are_those_that_the_ranks_get(small_store: Callable[..., tokpress.Store], world_size: int) -> None:
    store = small_store()
    data = tokpress.PretokenizedDataset(store, seq_len=64, output="numpy")
    loaders = [
        tokpress.Loader(data, batch_size=2, seed=7, rank=rank, world_size=world_size, threads=0)
        for rank in range(world_size)
    ]
    step = 4
    batches = [next(islice(iter(loader), step, None))["input_ids"] for loader in loaders]
    view = view_step(loaders[0], step, count=100, tokens=64)
    assert view.samples == 2 * world_size == len(view.rows)
    assert [row.rank for row in view.rows] == [rank for rank in range(world_size) for _ in range(2)]
    shown = np.array([[token.id for token in row.sequence.tokens] for row in view.rows])
    assert np.array_equal(shown, np.concatenate(batches))
    seen = [(each.sample, each.doc) for each in loaders[0].where(step)]
    assert seen == [(row.sample, stretch.doc) for row in view.rows for stretch in row.sequence.documents]


def test_a_mixture_and_pages(small_store: Callable[..., tokpress.Store]) -> None:
    data = tokpress.PretokenizedDataset(small_store(), seq_len=64, output="numpy")
    loader = tokpress.Loader({"a": data, "b": data}, weights={"a": 3, "b": 1}, batch_size=8, threads=0)
    whole = view_step(loader, 2, count=8)
    assert {row.source for row in whole.rows} == {"a", "b"}
    assert whole.steps is None
    assert view_step(loader, 2, first=3, count=2).rows == whole.rows[3:5]


def test_when_is_the_inverse(small_store: Callable[..., tokpress.Store]) -> None:
    data = tokpress.PretokenizedDataset(small_store(), seq_len=64, output="numpy")
    loader = tokpress.Loader(data, batch_size=4, seed=1, threads=0)
    for doc in (3, 50, 200):
        steps = view_when(loader, doc).steps
        assert steps
        for step in steps:
            assert doc in {stretch.doc for row in view_step(loader, step).rows for stretch in row.sequence.documents}


def test_a_loader_says_what_it_is(small_store: Callable[..., tokpress.Store]) -> None:
    data = tokpress.PretokenizedDataset(small_store(), seq_len=64, output="numpy")
    loader = tokpress.Loader(data, batch_size=4, threads=0)
    assert "batch_size=4" in repr(loader)
    assert f"step=0 of {len(loader)}" in repr(loader)
