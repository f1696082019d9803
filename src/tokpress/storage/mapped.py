"""A file as memory: nothing of it is read before it is touched, and no handle stays open.

In: a path. Out: its bytes, which nobody can change. A store may have more shards than a process may have open files, and
Python's own `mmap` holds on to a file (up to Python 3.12); Arrow's does not, but has the system read megabytes of each file
that is opened, be it for a single row. So this calls the system itself.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokpress.errors import TokpressError
from tokpress.storage import lost_pages
from tokpress.storage.lost_pages import StorePagesLost

_FAILED = ctypes.c_void_p(-1).value


def map_bytes(
    path: Path, error: type[TokpressError] = StorePagesLost, advice: str = "Is it still being written?"
) -> npt.NDArray[np.uint8]:
    """Its memory is let go when the last array or view on it is gone. `error` is raised, with the advice, in whoever
    touches a part of it that is gone: it has become shorter meanwhile, or cannot be read."""
    if sys.platform == "win32":
        return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:  # there is no map of nothing
            return np.empty(0, np.uint8)
        address = _map(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return np.asarray(_Memory(address, size, path, error, advice))


def current_size(path: str) -> int:
    """Of a file that was mapped: memory behind its end is gone. One that was removed meanwhile is still whole there."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - asked often: a Path takes three times as long
    except FileNotFoundError:
        return sys.maxsize


class _Memory:
    """Arrays hold on to it, and it is unmapped when it is gone; but not at exit, when others may still look at it."""

    def __init__(self, address: int, size: int, path: Path, error: type[TokpressError], advice: str) -> None:
        read_only = True
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, read_only)}
        lost_pages.watch(address, size, str(path), error, advice)
        weakref.finalize(self, _let_go, address).atexit = False


def _let_go(address: int) -> None:
    _unmap(address, lost_pages.forget(address))  # forgotten first: the address may be another's as soon as it is free


if sys.platform != "win32":
    _system = ctypes.CDLL(None, use_errno=True)
    _map, _unmap = _system.mmap, _system.munmap
    _map.restype = ctypes.c_void_p
    _map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    _unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
