"""One writer a directory.

In: a directory. Out: a lock that the kernel holds for the life of a process: a second writer is refused, and a writer that
died, however it died, leaves nothing behind that has to be cleaned up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tokpress.errors import StoreError
from tokpress.storage.directories import open_own, opened

LOCK = ".lock"
_TRIES = 100  # each lost to another writer that ended just then


class WriterLock:
    """`with WriterLock(directory):` holds it; raises StoreError if another process does. Makes the directory."""

    def __init__(
        self,
        directory: Path,
        system: Any = os,
        descriptor: Callable[[], AbstractContextManager[int]] | None = None,
    ) -> None:
        """`system` is `os`, or what stands in for it in a test; `descriptor` opens the directory, where no link may be."""
        self._path = directory / LOCK
        self._os = system
        self._open_directory = descriptor or (lambda: opened(system, directory, ()))
        self._descriptor = -1
        self._made = False  # whether the directory is there for this lock alone

    def __enter__(self) -> WriterLock:
        for _ in range(_TRIES):
            if self._try():
                break
        else:
            raise OSError(errno.ENOENT, "no directory can be made there", str(self._path.parent))
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def _try(self) -> bool:
        """False if the file that was locked is no longer the one under this name: its last holder removed it."""
        self._made |= not self._path.parent.exists()
        try:
            self._make(self._path.parent)
            with self._open_directory() as directory:
                self._descriptor = open_own(os, LOCK, directory, os.O_RDWR | os.O_CREAT, self._path)
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            _check_around(self._path.parent, error)
            return False  # the last holder removed the directory, too
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise StoreError(
                f"{self._path.parent} is being written by another run ({holder or 'unknown'}). "
                "Wait for it or stop it, then run the same command again."
            ) from error
        except OSError:  # a file system that has no locks
            os.close(self._descriptor)
            raise
        try:
            if self._is_there():
                return True
        except FileNotFoundError:
            pass
        os.close(self._descriptor)
        return False

    def _is_there(self) -> bool:
        """Whether the file under this name is the one that was locked."""
        return os.path.samestat(self._path.lstat(), os.fstat(self._descriptor))

    def _make(self, directory: Path) -> None:
        """With the directories around it, as far as they are missing, and so that they survive a loss of power."""
        if directory.is_dir():
            return
        self._make(directory.parent)
        try:
            self._os.mkdir(directory)
        except FileExistsError:
            if not directory.is_dir():  # else another writer made it just now
                raise
        around = self._os.open(directory.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._os.fsync(around)
        except OSError:
            with suppress(OSError):
                self._os.rmdir(directory)
            raise
        finally:
            self._os.close(around)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(FileNotFoundError):
            if self._is_there():
                self._path.unlink()
        if self._made:
            with suppress(OSError):  # something was written: it stays
                self._os.rmdir(self._path.parent)
        os.close(self._descriptor)


def _check_around(directory: Path, cause: OSError) -> None:
    """Raises an error that names what is no directory, if something around it is none: a file, or a link to nowhere."""
    for place in (directory, *directory.parents):
        if os.path.lexists(place):
            if not place.is_dir():
                number, why = (
                    (errno.ENOTDIR, "is a file, not a directory")
                    if place.exists()
                    else (errno.ENOENT, "is a link to nowhere")
                )
                raise OSError(number, why, str(place)) from cause
            return


def is_held(directory: Path, locks: Path = Path("/proc/locks")) -> bool | None:
    """Whether a process of this machine writes there, without taking the lock, which would refuse one that begins just now.
    None: this system does not say."""
    try:
        held = (directory / LOCK).stat()
    except OSError:
        return False
    try:
        listed = locks.read_text()
    except OSError:
        return None
    place = f"{os.major(held.st_dev):02x}:{os.minor(held.st_dev):02x}:{held.st_ino}"
    return any("FLOCK" in line and place in line.split() for line in listed.splitlines())
