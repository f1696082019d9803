"""Many mapped files, seen as one array.

In: arrays of one dtype, each a map that lies somewhere in memory. Out: one array that reaches from the lowest of them to the
end of the highest, and where in it each stands. So rows out of a thousand shards are gathered together, and not by a call,
with the interpreter's lock taken again, for each of them. What lies between the maps belongs to others or to nobody and must
not be touched: whoever asks has to know that a map holds what is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tokpress.batches import Int64s

_NOT_THERE = -1
_SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32}  # by size; of bytes torch has unsigned ones


class Maps:
    """Has room for `count` arrays. One that is added can be asked for at once, also by other threads."""

    def __init__(self, count: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._arrays: dict[int, npt.NDArray[Any]] = {}  # held, so that their memory stays theirs
        self._addresses = np.full(count, _NOT_THERE, np.int64)  # in items: pages, where maps start, hold whole ones
        self._lowest = np.empty(0, dtype)
        self._span = Span(0, self._lowest)

    def add(self, index: int, array: npt.NDArray[Any]) -> None:
        if not len(array):
            return
        address = array.ctypes.data // self._dtype.itemsize
        low, high = self._span.low, self._span.low + len(self._span.data)
        if not self._arrays or address < low:
            low, self._lowest = address, array
        high = max(high, address + len(array))
        self._arrays[index] = array
        if high - low != len(self._span.data):
            self._span = Span(low, as_strided(self._lowest, (high - low,), writeable=False))
        self._addresses[index] = address  # last: now it is there

    def has(self, indices: Int64s) -> npt.NDArray[np.bool_]:
        there: npt.NDArray[np.bool_] = self._addresses[indices] != _NOT_THERE
        return there

    def locate(self, indices: Int64s, starts: Int64s) -> tuple[Span, Int64s]:
        """All of them as one array, and where in it items `starts` of these ones stand."""
        span = self._span
        return span, self._addresses[indices] + (starts - span.low)


class Span:
    """Memory from an address on."""

    def __init__(self, low: int, data: npt.NDArray[Any]) -> None:
        self.low = low
        self.data = data
        self._windows: dict[int, npt.NDArray[Any]] = {}
        self._tensors: dict[int, Any] = {}

    def windows(self, length: int) -> npt.NDArray[Any]:
        """Row i is the `length` items from i on."""
        if length not in self._windows:
            shape = (len(self.data) - length + 1, length)
            self._windows[length] = as_strided(self.data, shape, self.data.strides * 2, writeable=False)
        return self._windows[length]

    def tensor_windows(self, length: int) -> Any:
        """The same as a tensor, of signed numbers."""
        if length not in self._tensors:
            shape = (len(self.data) - length + 1, length)
            self._tensors[length] = signed_tensor(np.asarray(_Unlocked(self.data))).as_strided(shape, (1, 1))
        return self._tensors[length]

    def matrix(self, length: int, phase: int) -> npt.NDArray[Any]:
        """Row i is the `length` items from `phase + i * length` on."""
        rows = (len(self.data) - phase) // length
        return self.data[phase : phase + rows * length].reshape(rows, length)


class _Unlocked:
    """Memory that nobody may write to, for torch, which has no word for that and would warn of it."""

    def __init__(self, data: npt.NDArray[Any]) -> None:
        self._data = data  # held
        self.__array_interface__ = data.__array_interface__ | {"data": (data.ctypes.data, False)}


def signed_tensor(array: npt.NDArray[Any]) -> Any:
    """The same memory. Of unsigned numbers torch can do little more than to convert them."""
    import torch

    return torch.from_numpy(array.view(_SIGNED[array.itemsize]))
