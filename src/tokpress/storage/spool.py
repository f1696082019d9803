"""An object on its way to a bucket: kept on this machine's disk until it is whole, then put in one step.

In: bytes. Out: an object under its final key. Small ones wait in memory; others in a file without a name, of which nothing
is left however the process ends. Above 64 MB an object is put in parts, which the store joins. What the store then says of
its size is compared with what was written: parts can get lost.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

from tokpress.storage.base import Upload

SPOOL_DIR = "TOKPRESS_SPOOL_DIR"
MULTIPART_BYTES = 64 * 1024**2
PART_BYTES = 16 * 1024**2
PARTS_AT_ONCE = 4
_MEMORY_BYTES = 256 * 1024
_TRIES = 3

Put = Callable[[Any], None]  # all bytes, as one buffer
SizeOf = Callable[[], int | None]


class SpooledUpload(Upload):
    def __init__(self, key: str, location: str, put: Put, size_of: SizeOf) -> None:
        super().__init__(key)
        self._location = location
        self._put = put
        self._size_of = size_of
        self._small = bytearray()
        self._file: int | None = None  # a descriptor, once there is more
        self._let_go: Callable[[], object] = lambda: None

    def _write(self, view: memoryview) -> None:
        if self._file is None and len(self._small) + len(view) <= _MEMORY_BYTES:
            self._small += view
            return
        if self._file is None:
            self._file = _nameless_file()
            self._let_go = weakref.finalize(self, os.close, self._file)
            _write_all(self._file, memoryview(self._small))
            self._small = bytearray()
        _write_all(self._file, view)

    def commit(self) -> None:
        there: int | None = None
        for _ in range(_TRIES):
            self._put(self._contents())
            there = self._size_of()
            if there == self.bytes:
                self.abort()
                return
        raise OSError(errno.EIO, f"the store has {there or 0:,} bytes of the {self.bytes:,} put there", self._location)

    def _contents(self) -> Any:
        """A file is mapped: its pages are the system's, not of this process's budget."""
        if self._file is None:
            return bytes(self._small)
        return mmap.mmap(self._file, self.bytes, access=mmap.ACCESS_READ)

    def abort(self) -> None:
        self.closed = True
        self._small = bytearray()
        self._let_go()


def _nameless_file() -> int:
    descriptor, path = tempfile.mkstemp(prefix="tokpress-", dir=os.environ.get(SPOOL_DIR) or None)
    os.unlink(path)  # noqa: PTH108
    return descriptor


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]
