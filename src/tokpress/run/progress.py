"""What a caller is told while a build runs.

In: calls of the coordinator. Out: nothing here; the command line draws them, a Python caller may ignore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from tokpress.engines.base import TokenizerInfo
from tokpress.engines.framing import Frame
from tokpress.engines.parity import Parity
from tokpress.sources.base import Input
from tokpress.store.manifest import Manifest


class FirstDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of the first document as they will be stored, so that a lost BOS or a wrong EOS is seen at once."""

    head: str
    tail: str
    tokens: int


class Reporter:
    """Hears what happens; this one keeps quiet."""

    def prepared(self, inputs: Sequence[Input], info: TokenizerInfo, frame: Frame) -> None: ...

    def proved(self, parity: Parity) -> None: ...

    def first_document(self, document: FirstDocument) -> None: ...

    def started(self, total_bytes: int) -> None: ...

    def advanced(self, *, input_bytes: int, docs: int, tokens: int, rejects: int) -> None: ...

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

    def stop(self) -> None:
        self.start("")
