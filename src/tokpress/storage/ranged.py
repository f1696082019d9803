"""An object as a file: read at any position, a few ranges ahead where it is read from one end to the other.

In: a function that gets a range of bytes. Out: what `pyarrow` and others read from. A first look (a few bytes at the start,
a footer) gets little; from the second read in a row on, ranges of 8 MB are on their way before they are asked for.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

RANGE_BYTES = 8 * 1024**2
RANGES_AHEAD = 3
READ_BYTES = (RANGES_AHEAD + 1) * RANGE_BYTES  # that one open file holds at most
_FIRST_BYTES = 64 * 1024
_THREADS = 16

GetRange = Callable[[int, int], Any]  # start, stop -> bytes


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="ranges")


class RangedFile(io.RawIOBase):
    def __init__(self, get: GetRange, size: int, *, ahead: int = RANGES_AHEAD) -> None:
        super().__init__()
        self._get = get
        self._size = size
        self._most_ahead = ahead
        self._position = 0
        self._expected = -1  # where a read would begin that follows the one before
        self._start, self._held = 0, memoryview(b"")
        self._ahead: deque[tuple[int, Future[Any]]] = deque()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = self._size - self._position if size is None or size < 0 else min(size, self._size - self._position)
        parts = []
        while left > 0:
            part = self._here(left)
            parts.append(part)
            self._position += len(part)
            left -= len(part)
        self._expected = self._position
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _here(self, most: int) -> memoryview:
        """Some bytes from the position on."""
        at = self._position - self._start
        if not 0 <= at < len(self._held):
            self._fetch(most)
            at = self._position - self._start
        return self._held[at : at + most]

    def _fetch(self, wanted: int) -> None:
        here = self._position
        while self._ahead and not self._ahead[0][0] <= here < self._ahead[0][0] + RANGE_BYTES:
            self._ahead.popleft()[1].cancel()
        if self._ahead:  # what was passed over need not be fetched again
            here, coming = self._ahead.popleft()
            self._held = memoryview(coming.result())
        else:
            in_order = here == self._expected or wanted > RANGE_BYTES
            some = RANGE_BYTES if in_order else max(wanted, _FIRST_BYTES)
            self._held = memoryview(self._get(here, min(here + some, self._size)))
            if not in_order:
                self._start = here
                return
        self._start = here
        next_start = self._ahead[-1][0] + RANGE_BYTES if self._ahead else here + len(self._held)
        while len(self._ahead) < self._most_ahead and next_start < self._size:
            stop = min(next_start + RANGE_BYTES, self._size)
            self._ahead.append((next_start, _threads().submit(self._get, next_start, stop)))
            next_start = stop

    def close(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._held = memoryview(b"")
        super().close()
