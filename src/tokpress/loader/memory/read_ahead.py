"""What the system is told about maps: how they will be read, and what will be read next.

In: mapped memory, and ranges of it that are about to be copied. Out: nothing; the system reads more or less, sooner or
later. Rows from all over a store that lies on a disk would be waited for page by page, by a disk that can read hundreds at
once. So all rows are asked for before the first of them is copied. Where they are in memory already that would be for
nothing, so it goes on only as long as something is read, and a little longer.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

_GOES_ON = 16  # calls without anything read from a disk, before ranges are no longer asked for


class ReadAhead:
    """Of one split's shards. `calls` counts how often ranges were asked for."""

    def __init__(self) -> None:
        self.calls = 0
        self._left = _GOES_ON
        self._disk_reads = _disk_reads()

    def wanted(self) -> bool:
        """Whether to ask for what is copied next."""
        if (reads := _disk_reads()) != self._disk_reads:
            self._disk_reads, self._left = reads, _GOES_ON
        if not self._left:
            return False
        self._left -= 1
        self.calls += 1
        return True

    def ask(self, array: npt.NDArray[Any], starts: Iterable[int], stops: Iterable[int]) -> None:
        """For these ranges of a map."""
        if sys.platform == "linux":
            address, size = array.ctypes.data, array.itemsize
            for start, stop in zip(starts, stops, strict=True):
                page = (address + start * size) // mmap.PAGESIZE * mmap.PAGESIZE
                _advise(page, address + stop * size - page, mmap.MADV_WILLNEED)


def expect_order(data: npt.NDArray[Any], *, scattered: bool) -> None:
    """Of a map whose rows are read one here, one there, the system should not read megabytes around each of them."""
    if sys.platform == "linux" and len(data):
        _advise(data.ctypes.data, data.nbytes, mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)


def _disk_reads() -> int:
    """Grows when the process waits for a disk, or asks one for something. Of all threads: several of them copy."""
    if sys.platform != "linux":
        return 0
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_majflt + usage.ru_inblock


if sys.platform == "linux":
    _advise = ctypes.CDLL(None).madvise
    _advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
