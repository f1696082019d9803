"""Files that are either whole or not there.

In: bytes. Out: a file under its final name, only after its data has reached the disk: written under a temporary name,
synced, renamed, and the directory synced. Everything in a store is written and removed through this module, with calls of
`os` alone: the tests put a disk that loses what was not synced in their place.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

TEMPORARY_SUFFIX = ".tmp"
_HASH_CHUNK_BYTES = 4 * 1024**2


class SyncFailed(OSError):  # noqa: N818 - reads as what happened
    """The disk refused to keep what was written. The file was discarded: it has to be written again from the start."""


class DurableFile:
    """A file being written. Counts and hashes what goes in; exists under its name from `commit` on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._hash = xxhash.xxh3_64()
        self.closed = False
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def write(self, data: Any) -> None:
        """Appends anything with the buffer protocol."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.bytes += len(view)
        while view:  # a write may be short: on a full disk, or past 2 GB
            view = view[os.write(self._descriptor, view) :]

    @property
    def checksum(self) -> str:
        return self._hash.hexdigest()

    def commit(self) -> None:
        """Makes the file exist. The directory is for the caller to sync, once for many files."""
        _sync(self._descriptor, self.path)
        self._close()
        os.replace(self._temporary, self.path)

    def abort(self) -> None:
        self._close()
        remove(self._temporary)

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)


def write_file(path: Path, data: bytes) -> None:
    """A small file, whole and synced, its directory too."""
    file = DurableFile(path)
    try:
        file.write(data)
        file.commit()
    except BaseException:
        file.abort()
        raise
    sync_directory(path.parent)


def remove(path: Path) -> None:
    """Removes a file, if it is there. The directory is for the caller to sync."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def make_directory(path: Path) -> None:
    """Makes a directory, if it is not there. The one around it is for the caller to sync."""
    with suppress(FileExistsError):
        os.mkdir(path)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _sync(descriptor, directory)
    finally:
        os.close(descriptor)


def _sync(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno == errno.EIO:  # after this nobody can say what is on the disk
            raise SyncFailed(errno.EIO, "the disk failed to keep what was written", str(path)) from error
        raise


def checksum(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def file_checksum(path: Path) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
