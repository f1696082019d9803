"""Mapped memory that is gone: an error instead of a dead process.

In: maps, with the path of the file and the error that is to be raised. Out: that error, in the thread that touched a page
which is no longer there. A file that has become shorter since it was mapped, and a disk that cannot read a page, are SIGBUS
to whoever touches it, and that ends a process without a word. Sizes are compared now and then, but a file may shrink between
two looks, and a look before each use would cost a loader more than the use.

Python's `signal` is of no help: its handlers run when the code in C is done, which it never is. So the handler is given to
the system by a call of its own. The signal comes while a thread reads, so none of Python's or the system's locks is held by
that read. The handler puts zeros in the place of what is gone, so that the read comes to its end, and has the thread raise
the error before its next step in Python: nobody gets to see the zeros. A signal that is not about memory of ours, and one
in a thread that is not Python's, where nothing can be raised, go to whoever handled them before; of ours the file is named
on the way. Only Linux on 64 bits has all of this; elsewhere there are the looks.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from typing import Any, NamedTuple

import numpy.typing as npt

from tokpress.errors import InputError, StoreError, TokpressError


class _Watched(NamedTuple):
    size: int
    path: str
    error: type[TokpressError]
    advice: str  # what to do about it


_maps: dict[int, _Watched] = {}  # that there are, by address
lost: dict[int, str] = {}  # of those the ones of which a part is gone, and what happened
_of_threads: dict[int, str] = {}  # what the error that a thread is about to raise will say


class StorePagesLost(StoreError):  # noqa: N818 - reads as what happened
    """Made without arguments where a thread is told to raise it; with its message where it was pickled."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(_message() if message is None else message)


class InputPagesLost(InputError):  # noqa: N818 - reads as what happened
    """As `StorePagesLost`, of an input."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(_message() if message is None else message)


def _message() -> str:
    return _of_threads.pop(threading.get_ident(), "") or next(reversed(lost.values()), "a mapped file is gone")


def watch(address: int, size: int, path: str, error: type[TokpressError], advice: str) -> None:
    """Until `forget`. Called again and again it makes sure that the handler is still ours: torch sets one in its workers."""
    _maps[address] = _Watched(size, path, error, advice)
    install()


def forget(address: int) -> int:
    """Gives its size."""
    lost.pop(address, None)
    return _maps.pop(address).size


def num_maps() -> int:
    """How many there are now: a process may have so many (`vm.max_map_count`)."""
    return len(_maps)


def check(*arrays: npt.NDArray[Any]) -> None:
    """Raises if these are mapped, and have zeros for what is gone. Needed only if anything is `lost`."""
    for address, what in list(lost.items()):
        watched = _maps[address]
        if any(address <= array.ctypes.data < address + watched.size for array in arrays):
            raise watched.error(what)


class _Action(ctypes.Structure):
    """`struct sigaction`, as glibc and musl have it on 64 bits."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


_WITH_ADDRESS = 4  # SA_SIGINFO
_ADDRESS_AT = 16  # of `si_addr` in `siginfo_t`
_HAS_ALL = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8
_before = _Action()  # what handled the signal before


def install() -> None:
    """Handles the signal from now on, if it does not already. Takes a microsecond."""
    if not _HAS_ALL:
        return
    now = _Action()
    if _sigaction(signal.SIGBUS, None, ctypes.byref(now)) or now.handler == _OURS.handler:
        return
    ctypes.memmove(ctypes.byref(_before), ctypes.byref(now), ctypes.sizeof(now))
    _sigaction(signal.SIGBUS, ctypes.byref(_OURS), None)


def _handle(_number: int, info: int, _context: int) -> None:
    """Runs in the thread that touched the page, in the middle of what it did."""
    touched = ctypes.c_uint64.from_address(info + _ADDRESS_AT).value
    for address, watched in list(_maps.items()):
        if address <= touched < address + watched.size:
            break
    else:
        _leave_it()
        return
    within = (touched - address) // mmap.PAGESIZE * mmap.PAGESIZE
    if (left := _size_now(watched)) < watched.size:
        what = f"has become shorter while it is read: {left:,} bytes instead of {watched.size:,}."
    else:
        left, what = within, "cannot be read: its disk, or the server that it is on, has lost a part of it."
    what = f"{watched.path} {what} {watched.advice}"
    if sys._getframe().f_back is None:  # no Python below: nothing can be raised there
        os.write(2, f"tokpress: {what}\n".encode())
        _leave_it()
        return
    _put_zeros(address, watched, min(left, within), what)
    for other, its in list(_maps.items()):  # what reads here may go on with another file that met the same fate
        if other not in lost and (left := _size_now(its)) < its.size:
            _put_zeros(other, its, left, f"{its.path} has become shorter while it is read. {its.advice}")
    thread = threading.get_ident()
    _of_threads[thread] = what
    _raise_in[thread] = watched.error  # the last step: see _RaiseIn


def _leave_it() -> None:
    """To whoever handled it before: the page is touched again when this handler returns."""
    _sigaction(signal.SIGBUS, ctypes.byref(_before), None)


def _size_now(watched: _Watched) -> int:
    try:
        return os.stat(watched.path).st_size  # noqa: PTH116 - as little as possible happens in a handler
    except OSError:  # removed: what is mapped is still there
        return watched.size


def _put_zeros(address: int, watched: _Watched, left: int, what: str) -> None:
    """In the place of all pages behind what is left."""
    lost[address] = what
    first = -(-left // mmap.PAGESIZE) * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if first < watched.size:
        _map(address + first, watched.size - first, mmap.PROT_READ, flags, -1, 0)


if _HAS_ALL:
    _system: Any = ctypes.CDLL(None, use_errno=True)
    _sigaction = _system.sigaction
    _sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    _map = _system.mmap
    _map.restype = ctypes.c_void_p
    _map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    _MAP_FIXED = 0x10
    _set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
    _set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)

    class _RaiseIn:
        """`_raise_in[thread] = error`: raised before that thread's next step in Python. An item that is set, not a call:
        after a call the interpreter looks whether there is something to raise, and it would be raised in the handler."""

        __setitem__ = _set_async_exc

    _raise_in = _RaiseIn()
    _callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_handle)
    _OURS = _Action(handler=ctypes.cast(_callback, ctypes.c_void_p).value, flags=_WITH_ADDRESS)
