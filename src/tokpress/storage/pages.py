"""Parts of remote objects on this machine's disk: a bounded cache in pages, shared by all processes, as memory.

In: objects, by number, and a way to get a range of one. Out: arrays in which those pages can be read that are held. The
objects lie one after the other in one sparse file, which is mapped; a page that is got is written where it belongs, one that
is let go is punched out again. So whoever has the pages reads at the speed of a local file.

A page counts when its checksum stands in `sums`, which is written after its bytes; each process compares it when it first
meets the page, so that what a crash or a bad disk left is got again. Readers hold a shared lock while they copy, and pages
are let go under an exclusive one. Of two who want the same pages one gets them, the other waits at a lock of that range.
All locks are the kernel's: a process that is killed leaves none behind. Pages that were not used for longest go first.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokpress.errors import StoreError, UsageError
from tokpress.storage.mapped import map_bytes
from tokpress.storage.requests import RequestFailed

PAGE_BYTES = 32 * 1024
_RUN_PAGES = 128  # got with one request, at most
_AT_ONCE = 8
_PATIENCE_SECONDS = 600.0  # for a store that does not answer, beyond what a request waits by itself
_FREED = 16  # a sixteenth of the bound is let go at a time
_PUNCH = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE

Pages = npt.NDArray[np.int64]
Get = Callable[[int, int, int], Any]  # object, start, stop -> bytes


class PageCache:
    """Of objects that never change. Any number of threads and processes may use it."""

    def __init__(self, directory: Path, sizes: Sequence[int], get: Get, most_bytes: int) -> None:
        if most_bytes < PAGE_BYTES:
            raise UsageError(
                f"cache_bytes={most_bytes:,} is less than one page of the cache, {PAGE_BYTES:,} bytes. Give at least some "
                "megabytes; with as much as the store has, each byte is fetched once."
            )
        if sys.platform != "linux":
            raise UsageError(
                "only Linux reads stores in a bucket page by page. Copy it to a disk, like: aws s3 cp --recursive"
            )
        self._directory = directory
        self._sizes = np.asarray(sizes, np.int64)
        counts = -(-self._sizes // PAGE_BYTES)
        self._firsts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)  # each object's first page
        self._get = get
        holds_all = most_bytes >= int(self._sizes.sum())
        self._most_pages = int(self._firsts[-1]) if holds_all else most_bytes // PAGE_BYTES
        self._since_count = 0
        self.fetched_bytes = 0
        pages = int(self._firsts[-1])
        directory.mkdir(parents=True, exist_ok=True)
        for name, size in (
            ("data", pages * PAGE_BYTES),
            ("sums", pages * 8),
            ("used", pages * 8),
            ("lock", 0),
            ("gets", 0),
        ):
            with (directory / name).open("ab") as file:
                if file.tell() < size:
                    file.truncate(size)
        self._sums = np.memmap(directory / "sums", np.uint64, "r+", shape=(pages,)) if pages else np.empty(0, np.uint64)
        self._used = np.memmap(directory / "used", np.int64, "r+", shape=(pages,)) if pages else np.empty(0, np.int64)
        self._checked = np.zeros(pages, np.bool_)
        self._data = map_bytes(directory / "data")
        self._give_back()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pages")

    def _give_back(self) -> None:
        """Pages without a checksum that take up the disk all the same: of processes that were killed while they wrote."""
        with self._lock(fcntl.LOCK_EX):
            taken = (self._directory / "data").stat().st_blocks * 512
            if taken > int(np.count_nonzero(self._sums)) * PAGE_BYTES:
                self._punch(np.flatnonzero(self._sums == 0))

    def array(self, index: int) -> npt.NDArray[np.uint8]:
        """An object's bytes. Only those of pages that are held mean anything."""
        first = int(self._firsts[index]) * PAGE_BYTES
        return self._data[first : first + int(self._sizes[index])]

    def pages_of(self, objects: Pages, starts: Pages, stops: Pages) -> Pages:
        """The pages that ranges of bytes touch, each once."""
        firsts = self._firsts[objects] + starts // PAGE_BYTES
        counts = self._firsts[objects] + -(-stops // PAGE_BYTES) - firsts
        which = np.repeat(firsts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return np.unique(which + np.arange(len(which)))

    @contextmanager
    def holding(self, pages: Pages) -> Iterator[None]:
        """These pages are there, and stay while the block runs."""
        for _ in range(3):
            with self._lock(fcntl.LOCK_SH):
                if not len(self._missing(pages)):
                    self._used[pages] = time.monotonic_ns()
                    yield
                    return
            self.fill(pages)
        with self._lock(
            fcntl.LOCK_EX
        ):  # others let go of them again and again: the cache is smaller than what all need now
            for first, last in self._runs(self._missing(pages)):
                self._store(first, self._bytes(first, last))
            yield

    def fill(self, pages: Pages) -> None:
        """Gets those pages that are missing."""
        missing = pages[self._sums[pages] == 0]
        list(self._threads.map(lambda run: self._get_run(*run), self._runs(missing)))
        self._since_count += len(missing)
        if self._since_count * 64 >= self._most_pages:
            self._since_count = 0
            self._let_go()

    def _missing(self, pages: Pages) -> Pages:
        """Compares the checksums of pages that this process has not met yet, too."""
        there = self._sums[pages] != 0
        for page in pages[there & ~self._checked[pages]].tolist():
            if self._sum(page) == int(self._sums[page]):
                self._checked[page] = True
            else:
                self._sums[page] = 0
        missing: Pages = pages[self._sums[pages] == 0]
        return missing

    def _sum(self, page: int) -> int:
        return xxhash.xxh3_64_intdigest(self._data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES].data) or 1

    def _runs(self, pages: Pages) -> list[tuple[int, int]]:
        """Neighbours of one object together, as (first, last + 1)."""
        if not len(pages):
            return []
        objects = np.searchsorted(self._firsts, pages, "right")
        breaks = np.flatnonzero((np.diff(pages) != 1) | (np.diff(objects) != 0)) + 1
        found = []
        for run in np.split(pages, breaks):
            found += [
                (int(run[k]), int(run[min(k + _RUN_PAGES, len(run)) - 1]) + 1) for k in range(0, len(run), _RUN_PAGES)
            ]
        return found

    def _get_run(self, first: int, last: int) -> None:
        descriptor = os.open(self._directory / "gets", os.O_RDWR | os.O_CLOEXEC)
        try:  # closing it ends the lock
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack("hhqqi", fcntl.F_WRLCK, 0, first, last - first, 0))
            pages = np.arange(first, last)
            for start, stop in self._runs(pages[self._sums[pages] == 0]):  # another may have got some meanwhile
                data = self._bytes(start, stop)
                with self._lock(fcntl.LOCK_SH):
                    self._store(start, data)
        finally:
            os.close(descriptor)

    def _bytes(self, first: int, last: int) -> memoryview:
        index = int(np.searchsorted(self._firsts, first, "right")) - 1
        start = (first - int(self._firsts[index])) * PAGE_BYTES
        stop = min(start + (last - first) * PAGE_BYTES, int(self._sizes[index]))
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                data = memoryview(self._get(index, start, stop))
            except RequestFailed:
                if time.monotonic() > until:
                    raise
                continue
            self.fetched_bytes += len(data)
            return data

    def _store(self, first: int, data: memoryview) -> None:
        descriptor = os.open(self._directory / "data", os.O_RDWR | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], first * PAGE_BYTES + written)
        finally:
            os.close(descriptor)
        for page in range(first, first - (-len(data) // PAGE_BYTES)):
            self._used[page] = time.monotonic_ns()
            self._sums[page] = self._sum(page)
            self._checked[page] = True

    def _let_go(self) -> None:
        """Of the pages that are there as many as are too many, and some more."""
        there = np.flatnonzero(np.array(self._sums))  # a copy: other processes write there meanwhile
        if len(there) <= self._most_pages:
            return
        with self._lock(fcntl.LOCK_EX):
            there = np.flatnonzero(np.array(self._sums))  # a copy: other processes write there meanwhile
            surplus = len(there) - self._most_pages
            if surplus <= 0:
                return
            count = min(surplus + self._most_pages // _FREED, len(there))
            gone = np.sort(there[np.argsort(self._used[there], kind="stable")[:count]])
            self._sums[gone] = 0
            self._punch(gone)

    def _punch(self, pages: Pages) -> None:
        descriptor = os.open(self._directory / "data", os.O_RDWR | os.O_CLOEXEC)
        try:
            for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if len(pages) else []:
                _punch(descriptor, int(run[0]) * PAGE_BYTES, len(run) * PAGE_BYTES, self._directory)
        finally:
            os.close(descriptor)

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


def _punch(descriptor: int, start: int, size: int, directory: Path) -> None:
    if _fallocate(descriptor, _PUNCH, start, size):
        raise StoreError(
            f"the file system of {directory} cannot give back parts of a file ({os.strerror(ctypes.get_errno())}), so a "
            "cache there has no bound. Name another directory (cache_dir), on a local disk, or copy the store to one."
        )


if sys.platform == "linux":
    _fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
