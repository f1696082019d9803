"""Files that are either whole or not there.

In: bytes. Out: a file under its final name, only after its data has reached the disk: written under a temporary name,
synced, renamed, and the directory synced. Everything in a store is written and removed through this module, with calls of
`os` alone: the tests put a disk that loses what was not synced in their place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import xxhash

TEMPORARY_SUFFIX = ".tmp"
_HASH_CHUNK_BYTES = 4 * 1024**2
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES, errno.ENOSYS)


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

    def __enter__(self) -> DurableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The file exists if the block was left without an error, and else not."""
        if kind is not None:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)


def write_file(path: Path, data: bytes) -> None:
    """A small file, whole and synced, its directory too."""
    with DurableFile(path) as file:
        file.write(data)
    sync_directory(path.parent)


def link_or_copy(source: Path, path: Path, *, copy: bool = False) -> str | None:
    """The bytes of `source` under one more name. The directory is for the caller to sync.

    Where names cannot share bytes (other file systems, some without links) or must not, a copy: then its checksum is
    returned, of the bytes as they were read; None for a link.
    """
    remove(path)
    if not copy:
        try:
            os.link(source, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return None
    with DurableFile(path) as file, source.open("rb", buffering=0) as data:
        while chunk := data.read(_HASH_CHUNK_BYTES):
            file.write(chunk)
    return file.checksum


def reserve(path: Path, size: int) -> None:
    """A file of so many bytes, to be written in any order. The disk's room is taken now: a full disk is an error here, and
    not a signal that kills whoever writes through a map later."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if size and os.fstat(descriptor).st_size != size:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def write_at(path: Path, offset: int, blocks: Iterable[Any]) -> None:
    """Blocks one after the other into a reserved file, from `offset` on, and synced."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for block in blocks:
            view = memoryview(block).cast("B")
            while view:
                written = os.pwrite(descriptor, view, offset)
                offset += written
                view = view[written:]
        _sync(descriptor, path)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """What was written into a file by other means (a map, another program) reaches the disk."""
    sync_directory(path)  # the same call, for a file


def move_directory(source: Path, path: Path) -> None:
    """Gives a directory another name, in one step; an empty one there gives way. The caller syncs what is around it."""
    os.replace(source, path)


def remove(path: Path) -> None:
    """Removes a file, if it is there. The directory is for the caller to sync."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(directory: Path) -> None:
    """Removes a directory with all that is in it, if it is there. The one around it is for the caller to sync."""
    if directory.is_symlink() or not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        inside = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_directory in inside:
        (remove_tree if is_directory else remove)(path)
    os.rmdir(directory)


def make_directory(path: Path) -> None:
    """Makes a directory, if it is not there. The one around it is for the caller to sync."""
    with suppress(FileExistsError):
        os.mkdir(path)


def make_parents(path: Path) -> None:
    """Makes the directories that `path` is to stand in, as far as they are missing, so that they stay."""
    for directory in reversed([directory for directory in path.parents if not directory.exists()]):
        make_directory(directory)
        sync_directory(directory.parent)


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
