"""Where a worker's time goes.

In: the stage that a worker begins. Out: seconds spent in each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter


@dataclass(slots=True)
class StageClock:
    """Seconds spent in each stage; one runs at a time."""

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
