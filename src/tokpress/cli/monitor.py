"""`--monitor`: a row a worker, live: what it is busy with, CPU, memory, rate."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from tokpress.cli.show import ConsoleReporter, number, size
from tokpress.run import events
from tokpress.run.events import Event


class MonitorReporter(ConsoleReporter):
    """As the usual one, with a table under the bar. Needs a terminal; elsewhere nothing is added."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bytes: Counter[int] = Counter()
        self._tokens_of: Counter[int] = Counter()

    def on(self, event: Event) -> None:
        if isinstance(event, events.Advanced):
            self._bytes[event.worker] += event.input_bytes
            self._tokens_of[event.worker] += event.tokens
        super().on(event)
        if isinstance(event, events.Workers) and self.progress is not None:
            self.progress.show_below(self._table(event))

    def _table(self, event: events.Workers) -> Table:
        elapsed = max(event.time - self._began, 1e-9)
        table = Table("worker", "unit", "CPU", "memory", "rate", "tokens", box=None)
        for view in event.workers:
            table.add_row(
                str(view.number),
                "idle" if view.unit is None else str(view.unit),
                f"{view.cpu_percent:.0f} %",
                size(view.memory_bytes),
                f"{size(self._bytes[view.number] / elapsed)}/s",
                number(self._tokens_of[view.number]),
            )
        return table
