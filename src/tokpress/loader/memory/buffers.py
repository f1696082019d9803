"""Memory for fields that is used again, but never while somebody still looks at it.

In: shapes. Out: arrays. Memory comes back to the pool when the last array, view or tensor on it is gone, so a training
loop that drops its batches runs in the same few buffers for ever, and one that keeps them keeps what it got. With a GPU,
memory is pinned and comes from torch's own caching allocator, which also waits for copies that are still under way.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Allocate = Callable[[str, tuple[int, ...], np.dtype[Any]], Array]  # memory for the field of this name

_KEPT_OF_EACH = 16  # free buffers of one size; more were once needed at the same time, and are let go


def new_memory(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:  # noqa: ARG001 - an Allocate
    return np.empty(shape, dtype)


class BufferPool:
    """An `Allocate` for fields. `created` counts the buffers ever made: it stands still once there are enough."""

    def __init__(self) -> None:
        self.created = 0
        self._free: defaultdict[int, list[npt.NDArray[np.uint8]]] = defaultdict(list)
        self._lock = threading.Lock()

    def __call__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:  # noqa: ARG002
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = self._free[size]
            memory = free.pop() if free else None
            self.created += memory is None
        if memory is None:
            memory = np.empty(size, np.uint8)
        # Made from a buffer, not as a view: views of this array hold on to it, and not to the memory behind it.
        array = np.frombuffer(memory.data, dtype).reshape(shape)
        owner = array.base if isinstance(array.base, np.ndarray) else array
        weakref.finalize(owner, self._take_back, memory).atexit = False
        return array

    def _take_back(self, memory: npt.NDArray[np.uint8]) -> None:
        # Without the lock: this may run inside any allocation, also one made while the lock is held.
        free = self._free[len(memory)]
        if len(free) < _KEPT_OF_EACH:
            free.append(memory)


class PinnedMemory:
    """An `Allocate` for fields on their way to a GPU."""

    def __call__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:  # noqa: ARG002
        import torch

        kind = getattr(torch, dtype.name if dtype.kind != "b" else "bool")
        pinned: Array = torch.empty(shape, dtype=kind, pin_memory=True).numpy()
        return pinned
