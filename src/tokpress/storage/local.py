"""A directory of this machine.

In: bytes. Out: files under their final names, only after their data has reached the disk: written under a temporary name of
their own, synced, renamed, and the directory synced (`barrier`). Nothing else in the package changes a file of a store, and
every change is one call of `os`: the tests put a disk that loses what was not synced in its place. What is changed is named
relative to an opened directory, and no link below the root is followed; whoever only reads follows them.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Any

from tokpress.storage.base import Stat, Storage, Upload, WriteAgain, parent_of
from tokpress.storage.directories import open_own, opened, refuse_link
from tokpress.storage.lock import WriterLock

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES = 4 * 1024**2
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES, errno.ENOSYS)
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


class SyncFailed(WriteAgain):
    """The disk refused to keep what was written. The file was discarded: it has to be written again from the start."""


class LocalStorage(Storage):
    """`system` is what stands in for `os`, in a test; `around` what the user named, if the root is below it."""

    has_lock = True

    def __init__(self, root: str | os.PathLike[str], system: Any = None, *, around: Path | None = None) -> None:
        self.root = Path(root)
        self.url = str(self.root)
        self._os = system or os
        self._around = around or self.root

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[Path]]:
        return LocalStorage, (self.root,)

    def location(self, key: str) -> str:
        return str(self.local(key))

    def below(self, prefix: str) -> LocalStorage:
        return LocalStorage(self.local(prefix), self._os, around=self._around)

    def local(self, key: str) -> Path:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} is no key: it would lead out of {self.root}")
        return self.root / key if key else self.root

    @contextmanager
    def _directory(self, prefix: str) -> Iterator[int]:
        """To change something in it."""
        with opened(self._os, self._around, self.local(prefix).relative_to(self._around).parts) as descriptor:
            yield descriptor

    @contextmanager
    def _place(self, key: str) -> Iterator[tuple[int, str]]:
        """The directory that an object stands in, and its name there. Errors name the object."""
        path = self.local(key)
        with opened(self._os, self._around, path.parent.relative_to(self._around).parts) as descriptor:
            try:
                yield descriptor, path.name
            except OSError as error:
                if not os.path.isabs(error.filename or ""):  # noqa: PTH117 - it may be no path
                    error.filename, error.filename2 = str(path), None
                raise

    def present(self) -> bool:
        return self.root.is_dir()

    def obstacle(self) -> str | None:
        if self.root.is_symlink() and not self.root.exists():
            return "a link to nowhere"
        return "a file" if self.root.exists() and not self.root.is_dir() else None

    def stat(self, key: str) -> Stat | None:
        """A pipe or a device, which would keep a reader waiting, is no object either."""
        try:
            found = self.local(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(found.st_size, str(found.st_mtime_ns)) if S_ISREG(found.st_mode) else None

    def list(self, prefix: str = "") -> list[str]:
        found: list[str] = []
        waiting = [prefix]
        while waiting:
            here = waiting.pop()
            for entry in self._entries(here):
                key = f"{here}/{entry.name}" if here else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(key)
                elif not is_temporary(entry.name):
                    found.append(key)
        return sorted(found)

    def children(self, prefix: str = "") -> Sequence[str]:
        return sorted(entry.name for entry in self._entries(prefix) if not is_temporary(entry.name))

    def _entries(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(self.local(prefix)) as entries:
                return tuple(entries)
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def open(self, key: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.OSFile(str(self.local(key)))

    def read(self, key: str) -> bytes:
        return self.local(key).read_bytes()

    def create(self, key: str) -> LocalUpload:
        return LocalUpload(self, key, self._os)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        upload = self.create(key)
        try:
            upload.write(data)
            upload.commit(if_absent=if_absent)
        except BaseException:
            upload.abort()
            raise
        self.barrier(parent_of(key))

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError), self._place(key) as (directory, name):
            self._os.unlink(name, dir_fd=directory)

    def delete_prefix(self, prefix: str) -> None:
        """Follows no link."""
        path = self.local(prefix)
        if path.is_symlink() or not path.is_dir():
            return
        for entry in self._entries(prefix):
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            (self.delete_prefix if entry.is_dir(follow_symlinks=False) else self.delete)(key)
        with self._place(prefix) as (directory, name):
            self._os.rmdir(name, dir_fd=directory)

    def delete_abandoned(self, *prefixes: str) -> None:
        for prefix in prefixes:
            for entry in self._entries(prefix):
                if is_temporary(entry.name):
                    self.delete(f"{prefix}/{entry.name}" if prefix else entry.name)

    def prepare(self, *prefixes: str) -> None:
        for prefix in prefixes:
            with self._place(prefix) as (directory, name), suppress(FileExistsError):
                refuse_link(name, directory, self.local(prefix))
                self._os.mkdir(name, dir_fd=directory)

    def barrier(self, *prefixes: str) -> None:
        for prefix in prefixes:
            with self._directory(prefix) as directory:
                _fsync(self._os, directory, self.local(prefix))

    def anchor(self) -> None:
        self.sync(self.root.parent)

    def links(self, *prefixes: str) -> Sequence[str]:
        found = [
            f"{prefix}/{entry.name}" if prefix else entry.name
            for prefix in prefixes
            for entry in self._entries(prefix)
            if entry.is_symlink()
        ]
        return sorted(found)

    def lock(self) -> WriterLock:
        return WriterLock(self.root, self._os, lambda: self._directory(""))

    # What only a local disk can do.

    def link(self, source: Path, key: str, *, copy: bool = False) -> str | None:
        """The bytes of a file under one more name. A barrier is for the caller.

        Where names cannot share bytes (other file systems, some without links) or must not, a copy: then its checksum is
        returned, of the bytes as they were read; None for a link.
        """
        self.delete(key)
        if not copy:
            try:
                with self._place(key) as (directory, name):
                    self._os.link(source, name, dst_dir_fd=directory)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                return None
        with self.create(key) as upload, source.open("rb", buffering=0) as data:
            while chunk := data.read(_CHUNK_BYTES):
                upload.write(chunk)
        return upload.checksum

    def reserve(self, key: str, size: int) -> None:
        """A file of so many bytes, to be written in any order. The disk's room is taken now: a full disk is an error here,
        and not a signal that kills whoever writes through a map later."""
        with self._reserved(key, os.O_CREAT) as descriptor:
            if size and os.fstat(descriptor).st_size != size:
                self._take_room(descriptor, size)

    def _take_room(self, descriptor: int, size: int) -> None:
        if hasattr(self._os, "posix_fallocate"):
            self._os.posix_fallocate(descriptor, 0, size)
            return
        zeros = bytes(_CHUNK_BYTES)  # macOS has no such call: what is written has its room
        for offset in range(0, size, _CHUNK_BYTES):
            self._write_all(descriptor, memoryview(zeros)[: size - offset], offset)

    @contextmanager
    def _reserved(self, key: str, flags: int = 0) -> Iterator[int]:
        with self._place(key) as (directory, name):
            descriptor = open_own(self._os, name, directory, os.O_RDWR | flags, self.local(key))
            try:
                yield descriptor
            finally:
                self._os.close(descriptor)

    def _write_all(self, descriptor: int, view: memoryview, offset: int) -> int:
        """Where it ends: a write may be short."""
        while view:
            written = self._os.pwrite(descriptor, view, offset)
            offset, view = offset + written, view[written:]
        return offset

    def write_at(self, key: str, offset: int, blocks: Iterable[Any]) -> None:
        """Blocks one after the other into a reserved file, from `offset` on, and synced."""
        with self._reserved(key) as descriptor:
            for block in blocks:
                offset = self._write_all(descriptor, memoryview(block).cast("B"), offset)
            _fsync(self._os, descriptor, self.local(key))

    @contextmanager
    def reserved(self, key: str) -> Iterator[IO[bytes]]:
        """A reserved file, for a map that is written to. To be synced by `sync`."""
        with self._reserved(key) as descriptor, open(descriptor, "r+b", closefd=False) as file:
            yield file

    def sync(self, path: Path) -> None:
        """What was written into a file by other means (a map, another program) reaches the disk."""
        descriptor = self._os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _fsync(self._os, descriptor, path)
        finally:
            self._os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Gives a directory another name, in one step; an empty one there gives way. A barrier is for the caller."""
        with self._place(source) as (before, old), self._place(target) as (after, new):
            self._os.replace(old, new, src_dir_fd=before, dst_dir_fd=after)

    def rename_new(self, source: str, target: str) -> None:
        """Gives a file another name, unless there is one of that name: then it raises FileExistsError."""
        with self._place(source) as (before, old), self._place(target) as (after, new):
            try:
                self._os.link(old, new, src_dir_fd=before, dst_dir_fd=after)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if os.path.lexists(self.local(target)):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.location(target)) from error
                self._os.replace(old, new, src_dir_fd=before, dst_dir_fd=after)
            else:
                self._os.unlink(old, dir_fd=before)

    def remove_empty(self, prefix: str) -> None:
        """Removes a directory, unless something is in it."""
        with suppress(OSError), self._place(prefix) as (directory, name):
            self._os.rmdir(name, dir_fd=directory)


class LocalUpload(Upload):
    """A file under a temporary name that no other attempt has."""

    def __init__(self, storage: LocalStorage, key: str, system: Any) -> None:
        super().__init__(key)
        self._os = system
        self._storage = storage
        self._path = storage.local(key)
        self._temporary = f".{self._path.name}.{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with storage._place(key) as (directory, _):
            self._descriptor = system.open(self._temporary, flags, 0o644, dir_fd=directory)

    def _write(self, view: memoryview) -> None:
        while view:  # a write may be short: on a full disk, or past 2 GB
            view = view[self._os.write(self._descriptor, view) :]

    def commit(self, *, if_absent: bool = False) -> None:
        _fsync(self._os, self._descriptor, self._path)
        self._close()
        with self._storage._place(self.key) as (directory, name):
            if if_absent:
                self._take_name(name, directory)
            else:
                self._os.replace(self._temporary, name, src_dir_fd=directory, dst_dir_fd=directory)

    def _take_name(self, name: str, directory: int) -> None:
        """A link fails where the name is taken. Where there are no links, two writers could win at the very same moment."""
        try:
            self._os.link(self._temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(self._path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._path)) from error
            self._os.replace(self._temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            self._os.unlink(self._temporary, dir_fd=directory)

    def abort(self) -> None:
        self._close()
        with suppress(FileNotFoundError), self._storage._place(self.key) as (directory, _):
            self._os.unlink(self._temporary, dir_fd=directory)

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self._os.close(self._descriptor)


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that an attempt is written under."""
    return _TEMPORARY.fullmatch(name) is not None


def _fsync(system: Any, descriptor: int, path: Path) -> None:
    try:
        system.fsync(descriptor)
    except OSError as error:
        if error.errno == errno.EIO:  # after this nobody can say what is on the disk
            raise SyncFailed(errno.EIO, "the disk failed to keep what was written", str(path)) from error
        raise
