"""Files that are either whole or not there.

In: bytes. Out: a file under its final name, only after its data has reached the disk: written under a temporary name,
synced, renamed, and the directory synced. Everything in a store is written through this module.
"""

from __future__ import annotations

import errno
import os
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
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._file = self._temporary.open("wb", buffering=0)

    def write(self, data: Any) -> None:
        """Appends anything with the buffer protocol."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.bytes += len(view)
        while view:  # a raw write may be short: on a full disk, or past 2 GB
            view = view[self._file.write(view) :]

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def checksum(self) -> str:
        return self._hash.hexdigest()

    def commit(self) -> None:
        """Makes the file exist. The directory is for the caller to sync, once for many files."""
        _sync(self._file.fileno(), self.path)
        self._file.close()
        self._temporary.replace(self.path)

    def abort(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


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
