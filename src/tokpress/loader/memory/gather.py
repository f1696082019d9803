"""Rows of mapped memory -> rows of a batch.

In: where rows begin in a `Span`, and which rows of an array they are to be, in rising order. Out: they are. By NumPy, or
where batches are tensors by torch, which copies on all of its threads, without the interpreter's lock, and rows of many
shards as fast as those of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.loader.memory.maps import Span, signed_tensor

Gather = Callable[[Span, Int64s, Int64s, npt.NDArray[Any]], None]

# Gathered at once, if they have to be widened or scattered then: they stay in the processor's cache.
_NUMPY_BYTES = 2**18
_TORCH_BYTES = 2**20  # by all threads together
_forked = False


def gather_with_numpy(span: Span, starts: Int64s, rows: Int64s, out: npt.NDArray[Any]) -> None:
    length = out.shape[1]
    if (straight := _straight(span, rows, out)) is not None:
        numbers, phases = np.divmod(starts, length)
        if (phases == phases[0]).all():  # of one shard, and they do not overlap: rows of a matrix
            np.take(span.matrix(length, int(phases[0])), numbers, axis=0, out=straight, mode="clip")
            return
    windows = span.windows(length)
    for part in _parts(len(rows), _NUMPY_BYTES // windows[0].nbytes):
        out[_place(rows[part])] = windows[starts[part]]


def gather_with_torch(span: Span, starts: Int64s, rows: Int64s, out: npt.NDArray[Any]) -> None:
    if _forked:
        gather_with_numpy(span, starts, rows, out)
        return
    import torch

    windows, places = span.tensor_windows(out.shape[1]), torch.from_numpy(starts)
    if (straight := _straight(span, rows, out)) is not None:
        torch.index_select(windows, 0, places, out=signed_tensor(straight))
        return
    together = max(_TORCH_BYTES // windows[0].nbytes, 1)
    held = np.empty((min(together, len(rows)), out.shape[1]), span.data.dtype)
    for part in _parts(len(rows), together):
        gathered = held[: len(rows[part])]
        torch.index_select(windows, 0, places[part], out=signed_tensor(gathered))
        where = _place(rows[part])
        if isinstance(where, slice):
            torch.from_numpy(out[where]).copy_(torch.from_numpy(gathered))
        else:
            out[where] = gathered


def _straight(span: Span, rows: Int64s, out: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """These rows of `out`, if they can be copied there as they are."""
    place = _place(rows)
    fits = isinstance(place, slice) and out.dtype == span.data.dtype and out.flags.c_contiguous
    return out[place] if fits else None


def _place(rows: Int64s) -> slice | Int64s:
    """A slice is a view, and faster to write to."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


def _parts(count: int, together: int) -> Iterator[slice]:
    for first in range(0, count, max(together, 1)):
        yield slice(first, min(first + max(together, 1), count))


def _note_fork() -> None:
    """Torch's threads do not survive a fork: whoever waits for them waits for ever."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note_fork)
