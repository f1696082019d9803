"""`--monitor`: what every worker does."""

from __future__ import annotations

import pytest

from tokpress.cli import monitor
from tokpress.cli.monitor import MonitorReporter
from tokpress.run.job import Advanced, WorkerView

from .test_build import Clock, console


def test_a_worker_s_rate_is_over_all_that_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(monitor, "monotonic", lambda: clock.now)
    reporter = MonitorReporter(console(terminal=True))
    reporter.started(10_000)
    clock.now += 2
    for worker, read in [(0, 3000), (1, 500), (0, 1000)]:
        reporter.advanced(worker, Advanced(input_bytes=read, tokens=read // 10))
    views = [
        WorkerView(number=number, unit=unit, cpu_percent=50.0, memory_bytes=2_000_000)
        for number, unit in [(0, 7), (1, None)]
    ]
    reporter.watched(views)
    reporter.stopped()
    assert reporter.progress is not None
    assert reporter.progress._bar is not None
    assert reporter.progress._bar.below is not None
    assert list(zip(*(column.cells for column in reporter.progress._bar.below.columns), strict=True)) == [
        ("0", "7", "50 %", "2.0 MB", "2.0 kB/s", "400"),
        ("1", "idle", "50 %", "2.0 MB", "250 B/s", "50"),
    ]
