"""Arrays that lie anywhere in memory are read as if they were one."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.loader.memory.maps import Maps

DTYPES = [np.uint8, np.uint16, np.uint32]


def mapped(size: int, dtype: Any, first: int) -> npt.NDArray[Any]:
    """A map of its own, as a shard's file is; nothing can be said about where it lies."""
    array = np.frombuffer(mmap.mmap(-1, (size + 1) * np.dtype(dtype).itemsize), dtype)[:size]
    array[:] = np.arange(first, first + size, dtype=dtype)
    return array


@given(
    sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    dtype=st.sampled_from(DTYPES),
    order=st.randoms(use_true_random=False),
)
def test_any_item_of_any_of_them(sizes: list[int], dtype: Any, order: Any) -> None:
    arrays = [mapped(size, dtype, 7 * i) for i, size in enumerate(sizes)]
    maps = Maps(len(arrays), np.dtype(dtype))
    added = list(range(len(arrays)))
    order.shuffle(added)
    for count, index in enumerate(added, 1):
        maps.add(index, arrays[index])
        there = np.array([i for i in added[:count] if sizes[i]], np.int64)
        which = np.repeat(there, [sizes[i] for i in there])
        starts = np.concatenate([np.arange(sizes[i]) for i in there] or [np.empty(0, np.int64)]).astype(np.int64)
        span, places = maps.locate(which, starts)
        expected = [arrays[i] for i in there] or [np.empty(0, dtype)]
        assert np.array_equal(span.data[places], np.concatenate(expected))
        assert maps.has(np.arange(len(arrays))).tolist() == [i in there for i in range(len(arrays))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_from_all_of_them_at_once(dtype: Any) -> None:
    arrays = [mapped(100 + i, dtype, i) for i in range(5)]
    maps = Maps(5, np.dtype(dtype))
    for i, array in enumerate(arrays):
        maps.add(i, array)
    which, starts = np.array([4, 0, 2, 2, 1]), np.array([96, 92, 0, 5, 50])
    span, places = maps.locate(which, starts)
    rows = span.windows(8)[places]
    assert rows.tolist() == [arrays[i][start : start + 8].tolist() for i, start in zip(which, starts, strict=True)]
    numbers, phases = np.divmod(places[:1], 8)
    assert span.matrix(8, int(phases[0]))[numbers[0]].tolist() == rows[0].tolist()


def test_nobody_writes_into_them() -> None:
    maps = Maps(1, np.dtype(np.uint16))
    maps.add(0, mapped(10, np.uint16, 0))
    span, places = maps.locate(np.array([0]), np.array([3]))
    with pytest.raises(ValueError, match="read-only"):
        span.data[places[0]] = 1


def test_they_are_held() -> None:
    """Else their memory could be given to another."""
    maps = Maps(2, np.dtype(np.uint32))
    for i in range(2):
        maps.add(i, mapped(1000, np.uint32, i))
    span, places = maps.locate(np.array([0, 1]), np.array([999, 999]))
    assert span.data[places].tolist() == [999, 1000]
