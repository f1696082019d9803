"""What of a file is in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest


def drop(path: Path) -> None:
    """Nothing of it is, from now on."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_pages(path):
        pytest.skip("this file system has its files in memory")


def resident_pages(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as data:
        pages = (ctypes.c_ubyte * -(-len(data) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(data)
        assert ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(data)), pages) == 0
        del start
    return sum(page & 1 for page in pages)
