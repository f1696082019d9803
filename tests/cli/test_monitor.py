"""`--monitor`: what every worker does."""

from __future__ import annotations

import pytest

from tokpress.cli.monitor import MonitorReporter
from tokpress.run.events import Advanced, Started, Stopped, Workers, WorkerView

from .test_build import Clock, console


def test_a_worker_s_rate_is_over_all_that_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reporter = MonitorReporter(console(terminal=True))
    reporter.on(Started(time=3.0, bytes=10_000, units=8, workers=2, threads=1))
    clock.now += 2
    for worker, read in [(0, 3000), (1, 500), (0, 1000)]:
        reporter.on(Advanced(time=5.0, worker=worker, input_bytes=read, tokens=read // 10))
    views = [
        WorkerView(number=number, unit=unit, cpu_percent=50.0, memory_bytes=2_000_000)
        for number, unit in [(0, 7), (1, None)]
    ]
    reporter.on(Workers(time=5.0, workers=views))
    reporter.on(Stopped(time=5.0))
    assert reporter.progress is not None
    assert reporter.progress._bar is not None
    assert reporter.progress._bar.below is not None
    assert list(zip(*(column.cells for column in reporter.progress._bar.below.columns), strict=True)) == [
        ("0", "7", "50 %", "2.0 MB", "2.0 kB/s", "400"),
        ("1", "idle", "50 %", "2.0 MB", "250 B/s", "50"),
    ]
