"""Large records take turns.

In: how much memory a worker is about to need. Out: nothing, as soon as it may have it; or an error, if it never can.

A worker's share of the budget is enough for a batch, and for records many times larger than that. A record beyond the share
uses memory that others may be using, so its worker waits until no other one is busy with more than an ordinary batch. What
cannot fit even so is an error and not a reject: whether a document is stored must not depend on `--memory`. The turns are
a lock of this host that the kernel holds: a worker that dies with it gives it back.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from tokpress.errors import NotEnoughMemory

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much memory a worker may use on top of its footprint."""

    ordinary: int  # always
    share: int  # while no other worker uses more than its own share
    most: int  # while no other worker uses more than what is ordinary
    budget: int  # of the whole run, for the message


class Gate:
    def __init__(self, room: Room, lock: int | None = None) -> None:
        """`lock` is a descriptor that all workers of this host inherited; None: there is only one."""
        self._lock = lock
        self._room = room
        self._descriptor = -1
        self._held = fcntl.LOCK_UN

    def wait_for(self, need: int, source: str) -> None:
        """Returns when so many bytes may be used. May be asked again and again as a record of `source` grows."""
        if need <= self._room.ordinary:
            return
        if need > self._room.most:
            raise NotEnoughMemory(
                f"a record of {source} may need {need // 10**6:,} MB of memory, but --memory leaves "
                f"{self._room.most // 10**6:,} MB for one. Nothing is lost: run the same command again with "
                f"--memory {-(-(self._room.budget - self._room.most + 2 * need) // 10**9)}GB."
            )
        kind = fcntl.LOCK_SH if need <= self._room.share else fcntl.LOCK_EX
        if self._lock is None or self._held in (kind, fcntl.LOCK_EX):
            return
        self._take(kind)
        self._held = kind

    def leave(self) -> None:
        if self._held != fcntl.LOCK_UN:
            self._take(fcntl.LOCK_UN)
            self._held = fcntl.LOCK_UN

    def _take(self, kind: int) -> None:
        assert self._lock is not None
        if (
            not _DESCRIPTORS.exists()
        ):  # macOS: a lock that belongs to the process, which must not hold one and ask for more
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
            fcntl.lockf(self._lock, kind)
            return
        if self._descriptor < 0:  # opened anew: locks of one that was inherited would be everybody's
            self._descriptor = os.open(_DESCRIPTORS / str(self._lock), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._descriptor, kind)
