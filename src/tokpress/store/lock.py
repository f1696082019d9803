"""One writer a store.

In: a store's directory. Out: a lock that the kernel holds for the life of a process: a second writer is refused, and a
writer that died, however it died, leaves nothing behind that has to be cleaned up.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tokpress.errors import StoreError
from tokpress.store.durable import make_directory, make_parents

LOCK = ".lock"


class StoreLock:
    """`with StoreLock(directory):` holds it; raises StoreError if another process does."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK
        self._descriptor = -1
        self._made = False  # whether the directory is there for this lock alone

    def __enter__(self) -> StoreLock:
        while not self._try():
            pass
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def _try(self) -> bool:
        """False if the file that was locked is no longer the one under this name: its last holder removed it."""
        self._made |= not self._path.parent.exists()
        try:
            make_parents(self._path.parent)
            make_directory(self._path.parent)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            if self._path.parent.is_symlink():  # to nowhere: it would be so for ever
                raise
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
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return True
        except FileNotFoundError:
            pass
        os.close(self._descriptor)
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)
        if self._made:
            with suppress(OSError):  # something was written: it stays
                self._path.parent.rmdir()
        os.close(self._descriptor)
