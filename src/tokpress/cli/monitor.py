"""`--monitor`: a row a worker, live: what it is busy with, CPU, memory, rate."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from rich.console import Console
from rich.table import Table

from tokpress.cli.show import ConsoleReporter, number, size
from tokpress.run.messages import Advanced, WorkerView


class MonitorReporter(ConsoleReporter):
    """As the usual one, with a table under the bar. Needs a terminal; elsewhere nothing is added."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bytes: Counter[int] = Counter()
        self._tokens_of: Counter[int] = Counter()
        self._since = monotonic()

    def started(self, total_bytes: int) -> None:
        super().started(total_bytes)
        self._since = monotonic()

    def advanced(self, worker: int, advanced: Advanced) -> None:
        self._bytes[worker] += advanced.input_bytes
        self._tokens_of[worker] += advanced.tokens
        super().advanced(worker, advanced)

    def watched(self, workers: list[WorkerView]) -> None:
        if self.progress is None:
            return
        elapsed = max(monotonic() - self._since, 1e-9)
        table = Table("worker", "unit", "CPU", "memory", "rate", "tokens", box=None)
        for view in workers:
            table.add_row(
                str(view.number),
                "idle" if view.unit is None else str(view.unit),
                f"{view.cpu_percent:.0f} %",
                size(view.memory_bytes),
                f"{size(self._bytes[view.number] / elapsed)}/s",
                number(self._tokens_of[view.number]),
            )
        self.progress.show_below(table)
