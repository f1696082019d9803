"""Rows are the same by NumPy and by torch, wherever they come from and wherever they go."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.loader.memory import gather
from tokpress.loader.memory.gather import Gather, gather_with_numpy, gather_with_torch
from tokpress.loader.memory.maps import Maps

BOTH = [gather_with_numpy, gather_with_torch]


def maps_of(arrays: list[npt.NDArray[Any]]) -> Maps:
    maps = Maps(len(arrays), arrays[0].dtype)
    for i, array in enumerate(arrays):
        maps.add(i, array)
    return maps


@pytest.mark.parametrize("by", BOTH)
@given(draw=st.data())
def test_rows_of_any_shards_in_any_dtype(by: Gather, draw: st.DataObject) -> None:
    stored = np.dtype(draw.draw(st.sampled_from([np.uint8, np.uint16, np.uint32])))
    wanted = np.dtype(draw.draw(st.sampled_from([stored, np.int32, np.int64])))
    largest = min(np.iinfo(stored).max, np.iinfo(wanted).max)  # ids that take the highest bit, too
    random = np.random.default_rng(draw.draw(st.integers(0, 2**32)))
    arrays = [random.integers(0, largest, random.integers(300, 900), stored, endpoint=True) for _ in range(3)]
    length, count = draw.draw(st.integers(1, 300)), draw.draw(st.integers(1, 40))
    shards = random.integers(0, 3, count)
    starts = np.array([random.integers(0, len(arrays[shard]) - length + 1) for shard in shards])
    gaps = draw.draw(st.booleans())
    rows = np.sort(random.permutation(count + 5)[:count]) if gaps else np.arange(2, count + 2)
    out = np.full((count + 5, length), 7, wanted)
    span, places = maps_of(arrays).locate(shards, starts)
    by(span, places, rows, out)
    expected = np.full_like(out, 7)
    for row, shard, start in zip(rows.tolist(), shards.tolist(), starts.tolist(), strict=True):
        expected[row] = arrays[shard][start : start + length]
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("by", BOTH)
@pytest.mark.parametrize("wanted", [np.uint16, np.int64])
def test_more_than_is_gathered_at_once(by: Gather, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_NUMPY_BYTES", 3 * 2 * 64)  # three rows
    monkeypatch.setattr(gather, "_TORCH_BYTES", 3 * 2 * 64)
    ids = np.arange(60_000, dtype=np.uint16)
    starts = np.random.default_rng(0).integers(0, len(ids) - 64, 100)
    span, places = maps_of([ids]).locate(np.zeros(100, np.int64), starts)
    out = np.empty((100, 64), wanted)
    by(span, places, np.arange(100), out)
    assert np.array_equal(out, starts[:, None] + np.arange(64))


def test_torch_does_not_warn_of_memory_that_is_read_only(recwarn: pytest.WarningsRecorder) -> None:
    ids = np.arange(1000, dtype=np.uint32)
    ids.flags.writeable = False
    span, places = maps_of([ids]).locate(np.zeros(1, np.int64), np.array([5]))
    gather_with_torch(span, places, np.arange(1), np.empty((1, 10), np.uint32))
    assert not recwarn.list
    with pytest.raises(ValueError, match="read-only"):
        span.data[0] = 1


def test_a_fork_does_not_wait_for_threads_that_it_has_not() -> None:
    ids = np.arange(2**22, dtype=np.uint32)
    starts = np.arange(0, 2**21, 1024)
    span, places = maps_of([ids]).locate(np.zeros(len(starts), np.int64), starts)
    out = np.zeros((len(starts), 1024), np.uint32)

    def gathered() -> bool:
        gather_with_torch(span, places, np.arange(len(starts)), out)
        return bool(np.array_equal(out[:, 0], starts))

    assert gathered()  # on torch's threads
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if gathered() else 1)
    assert os.waitpid(child, 0)[1] == 0
