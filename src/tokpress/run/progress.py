"""What a caller is told while a build runs.

In: calls of the coordinator. Out: nothing here; the command line draws them, a Python caller may ignore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from tokpress.engines.framing import Frame
from tokpress.errors import NotEnoughMemory
from tokpress.records import Parity, TokenizerInfo
from tokpress.run.job import Advanced, FirstDocument, WorkerView
from tokpress.sources.base import Input
from tokpress.store.manifest import Manifest


class Reporter:
    """Hears what happens; this one keeps quiet."""

    def prepared(self, inputs: Sequence[Input], info: TokenizerInfo, frame: Frame) -> None: ...

    def proved(self, parity: Parity) -> None: ...

    def first_document(self, document: FirstDocument) -> None: ...

    def resuming(self, *, units: int, units_left: int, docs: int) -> None: ...

    def already_finished(self, directory: Path) -> None: ...

    def too_many_workers(self, error: NotEnoughMemory, *, fewer: int) -> None: ...

    def started(self, total_bytes: int) -> None: ...

    def advanced(self, worker: int, advanced: Advanced) -> None: ...

    def watched(self, workers: list[WorkerView]) -> None: ...

    def stopped(self) -> None: ...

    def finished(self, manifest: Manifest) -> None: ...


@dataclass(slots=True)
class StageClock:
    """Seconds spent in each stage; `with clock.stage("encode"):` adds to one."""

    seconds: dict[str, float] = field(default_factory=dict)
    _running: str = ""
    _since: float = 0.0

    def start(self, stage: str) -> None:
        """Ends the stage that runs and begins another."""
        now = perf_counter()
        if self._running:
            self.seconds[self._running] = self.seconds.get(self._running, 0.0) + now - self._since
        self._running, self._since = stage, now

    def move(self, seconds: float, stage: str, to: str) -> None:
        """Counts some of one stage's time as another's."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) - seconds
        self.seconds[to] = self.seconds.get(to, 0.0) + seconds

    def stop(self) -> None:
        self.start("")
