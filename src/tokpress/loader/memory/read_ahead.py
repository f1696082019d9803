"""What the system is told about maps: how they will be read, and what will be read next.

In: mapped memory, and rows of it that are about to be copied. Out: nothing; the system reads more or less, sooner or later.
Rows from all over a store that lies on a disk would be waited for page by page, by a disk that can read hundreds at once. So
all rows are asked for before the first of them is copied. Where they are in memory already that would be for nothing, so it
goes on only as long as something is read, and a little longer.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.loader.memory.maps import Span

_GOES_ON = 16  # calls that find everything in memory, before rows are no longer asked for


class ReadAhead:
    """Of one split's shards. `calls` counts how often rows were asked for."""

    def __init__(self) -> None:
        self.calls = 0
        self._left = _GOES_ON

    @contextmanager
    def of(self, span: Span, starts: Int64s, lengths: Int64s) -> Iterator[None]:
        """Around the copying of these rows. Each of them lies in one map."""
        before = _disk_reads()
        if self._left:
            self._left -= 1
            self.calls += 1
            _will_need(span, starts, lengths)
        yield
        if _disk_reads() != before:
            self._left = _GOES_ON


def expect_order(data: npt.NDArray[Any], *, scattered: bool) -> None:
    """Of a map whose rows are read one here, one there, the system should not read megabytes around each of them."""
    if sys.platform == "linux" and len(data):
        _advise(data.ctypes.data, data.nbytes, mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)


def _will_need(span: Span, starts: Int64s, lengths: Int64s) -> None:
    if sys.platform == "linux":
        size = span.data.itemsize
        addresses = (starts + span.low) * size
        pages = addresses // mmap.PAGESIZE * mmap.PAGESIZE
        for page, end in zip(pages.tolist(), (addresses + lengths * size).tolist(), strict=True):
            _advise(page, end - page, mmap.MADV_WILLNEED)


def _disk_reads() -> int:
    """Grows when this thread waits for a disk, or asks one for something."""
    if sys.platform != "linux":
        return 0
    import resource

    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_majflt + usage.ru_inblock


if sys.platform == "linux":
    _advise = ctypes.CDLL(None).madvise
    _advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
