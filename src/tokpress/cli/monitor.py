"""`--monitor`: a row a worker, and of several machines a row each: what it is busy with, CPU, memory, rate; live."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import msgspec
from rich.console import Console
from rich.table import Table

from tokpress.cli.show import ConsoleReporter, number, safe, size
from tokpress.run import events
from tokpress.run.events import Event, WorkerView


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
        for node, workers in groupby(event.workers, key=lambda view: view.node):
            views = list(workers)
            if node is not msgspec.UNSET:
                busy = sum(view.unit is not None for view in views)
                self._add_row(table, safe(node), f"{busy} of {len(views)} busy", views, elapsed)
            for place, view in enumerate(views):
                name = str(view.number) if node is msgspec.UNSET else f"  {place}"
                self._add_row(table, name, "idle" if view.unit is None else str(view.unit), [view], elapsed)
        return table

    def _add_row(self, table: Table, name: str, doing: str, views: list[WorkerView], elapsed: float) -> None:
        table.add_row(
            name,
            doing,
            f"{sum(view.cpu_percent for view in views):.0f} %",
            size(sum(view.memory_bytes for view in views)),
            f"{size(sum(self._bytes[view.number] for view in views) / elapsed)}/s",
            number(sum(self._tokens_of[view.number] for view in views)),
        )
