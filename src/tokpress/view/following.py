"""A build that goes on while it is looked at.

In: a file of `--events`, or a store that is being written, or both. Out: `RunStatus`, now. A file is read from where it was
read to; one that became shorter is another one, and read from its start.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import time

import msgspec

from tokpress.errors import StoreError, TokpressError
from tokpress.run.events import decode
from tokpress.run.status import Status, read_status
from tokpress.storage import open_storage
from tokpress.storage.lock import is_held
from tokpress.view.runs import RunFold, RunView

_READ_BYTES = 2**22
_STATUS_SECONDS = 1.0


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of the file or the store
    now: float  # seconds since 1970, by the clock of this machine
    run: RunView  # as the events tell it; waiting: there are none
    status: Status | None  # of the store, as its files tell it; None: nothing is built there, or nobody said where
    written: bool | None  # whether a process of this machine writes the store just now; None: nobody can say
    problem: str = ""  # why the events or the store cannot be read


class RunFollower:
    """Any number of threads may ask."""

    def __init__(self, *, store: str | None = None, events: str | os.PathLike[str] | None = None) -> None:
        self._store = store
        self._path = None if events is None else Path(events)
        self.name = store or str(events)
        self._lock = threading.Lock()
        self._fold = RunFold()
        self._offset = 0
        self._half = b""  # of a line that is being written
        self._status: tuple[float, Status | None] = (0.0, None)
        self._problem = ""

    def look(self) -> RunStatus:
        with self._lock:
            self._problem = ""
            self._read_events()
            run = self._fold.view()
            place = self._store or run.store or None
            return RunStatus(
                name=self.name,
                now=time(),
                run=run,
                status=self._read_status(place),
                written=None if place is None or "://" in place else is_held(Path(place)),
                problem=self._problem,
            )

    def _read_events(self) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._fold, self._offset, self._half = RunFold(), 0, b""
                file.seek(self._offset)
                while data := file.read(_READ_BYTES):
                    self._offset += len(data)
                    *lines, self._half = (self._half + data).split(b"\n")
                    for line in lines:
                        self._hear(line)
        except OSError as error:
            self._problem = f"{self._path} cannot be read: {error.strerror}. It is there when the build has begun."

    def _hear(self, line: bytes) -> None:
        """A line in which a run was killed is none; the next run begins on a line of its own."""
        try:
            self._fold.on(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.strip():
                self._problem = f"a line of {self._path} is no event: {error}"

    def _read_status(self, place: str | None) -> Status | None:
        """Of a large store that takes a while: not asked more than once a second."""
        if place is None:
            return None
        asked, known = self._status
        if known is None or time() - asked > _STATUS_SECONDS:
            try:
                known = read_status(open_storage(place))
            except StoreError:  # nothing is there yet
                known = None
            except (TokpressError, OSError) as error:
                known, self._problem = None, str(error)
            self._status = (time(), known)
        return known
