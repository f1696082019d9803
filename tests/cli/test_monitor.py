"""`--monitor`: what every worker does."""

from __future__ import annotations

import pytest

from tokpress.cli.monitor import MonitorReporter
from tokpress.run.events import Advanced, Started, Stopped, Workers, WorkerView

from .test_build import Clock, console


def rows(reporter: MonitorReporter) -> list[tuple[object, ...]]:
    assert reporter.progress is not None
    assert reporter.progress._bar is not None
    assert reporter.progress._bar.below is not None
    return list(zip(*(column.cells for column in reporter.progress._bar.below.columns), strict=True))


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
    assert rows(reporter) == [
        ("0", "7", "50 %", "2.0 MB", "2.0 kB/s", "400"),
        ("1", "idle", "50 %", "2.0 MB", "250 B/s", "50"),
    ]


def test_of_several_machines_each_has_a_row_with_its_workers_below(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reporter = MonitorReporter(console(terminal=True))
    reporter.on(Started(time=3.0, bytes=10_000, units=8, workers=3, threads=1))
    clock.now += 2
    for worker, read in [(0, 3000), (1, 500), (1000, 1000)]:
        reporter.on(Advanced(time=5.0, worker=worker, input_bytes=read, tokens=read // 10))
    views = [
        WorkerView(number=number, unit=unit, cpu_percent=50.0, memory_bytes=2_000_000, node=node)
        for number, unit, node in [(0, 7, "one 0"), (1, None, "one 0"), (1000, 9, "two 1")]
    ]
    reporter.on(Workers(time=5.0, workers=views))
    reporter.on(Stopped(time=5.0))
    assert rows(reporter) == [
        ("one 0", "1 of 2 busy", "100 %", "4.0 MB", "1.8 kB/s", "350"),
        ("  0", "7", "50 %", "2.0 MB", "1.5 kB/s", "300"),
        ("  1", "idle", "50 %", "2.0 MB", "250 B/s", "50"),
        ("two 1", "1 of 1 busy", "50 %", "2.0 MB", "500 B/s", "100"),
        ("  0", "9", "50 %", "2.0 MB", "500 B/s", "100"),
    ]
