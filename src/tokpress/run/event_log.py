"""`--events FILE`: the events of a run as JSON lines, and back.

In: events. Out: a line for each as it happens: another process can follow the file, and after a kill it holds all that was
told. A run that goes on appends to the file; each begins with `began`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from tokpress.errors import InputError
from tokpress.run.events import Advanced, Began, Event, Workers, decode, encode

_ADVANCED_SECONDS = 0.5  # between two lines of one worker


class EventLog:
    """A reporter that writes to a file or a pipe. Batches of one worker are summed up to two lines a second.

    A log that cannot be written any more (a full disk, a reader that is gone) does not end a run of hours: `failure` says
    what happened, and nothing is written from then on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.failure: OSError | None = None
        self._last: dict[int, float] = {}  # by worker: when its last line was written
        self._pending: dict[int, Advanced] = {}
        self._file: BinaryIO = Path(path).open("ab")  # noqa: SIM115 - closed by `close`
        if _ends_in_a_line(Path(path)):
            self._write(b"\n")  # an earlier run was killed while it wrote its last line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on(self, event: Event) -> None:
        if isinstance(event, Advanced):
            before = self._pending.get(event.worker)
            self._pending[event.worker] = event if before is None else before + event
            if event.time - self._last.get(event.worker, -_ADVANCED_SECONDS) >= _ADVANCED_SECONDS:
                self._tell_pending(event.worker)
            return
        if isinstance(event, Began):
            self._last.clear()  # its times are counted from 0 again
        if not isinstance(event, Workers):
            self._tell_pending(*self._pending)  # what is told next stands after all that happened before it
        self._write(encode(event) + b"\n")

    def close(self) -> None:
        self._tell_pending(*self._pending)
        try:
            self._file.close()
        except OSError as error:
            self.failure = self.failure or error

    def _tell_pending(self, *workers: int) -> None:
        for worker in workers:
            event = self._pending.pop(worker)
            self._last[worker] = event.time
            self._write(encode(event) + b"\n")

    def _write(self, line: bytes) -> None:
        if self.failure is not None:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self.failure = error


def _ends_in_a_line(path: Path) -> bool:
    """Whether a file ends in a part of a line."""
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The events of a file, one after the other. The last line of a run that was killed may be a part of one: it is left
    out. Any other line that is no event is an error.

    `path`: what `tokpress build --events` or an `EventLog` wrote.

        for event in tokpress.read_events("events.jsonl"):
            print(event)
    """
    broken: InputError | None = None
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                event = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if broken is not None:
                    raise broken from None
                broken = InputError(
                    f"{os.fspath(path)}: line {number:,} is no event: {error}. Is it a file of --events?"
                )
                continue
            if broken is not None and not isinstance(event, Began):
                raise broken
            broken = None
            yield event
        if broken is not None and line.endswith(b"\n"):
            raise broken
