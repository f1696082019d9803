"""StepMeter: every moment of a step is in one phase, and the meter waits for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress.errors import UsageError
from tokpress.metering import meter as meter_module
from tokpress.metering.meter import DeviceClock
from tokpress.metering.report import PHASES, read_report


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, milliseconds: float) -> None:
        self.now += milliseconds / 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter_module, "perf_counter", clock)
    return clock


def spent(meter: tokpress.StepMeter) -> dict[str, float]:
    """Milliseconds of an average step, by phase."""
    return {times.phase: round(times.mean_ms, 6) for times in meter.report().phases if times.mean_ms}


class TestPhases:
    def test_of_a_step(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0)
        with meter.step():
            clock.pass_(1)
            with meter.phase("data"):
                clock.pass_(2)
            with meter.phase("compute"):
                clock.pass_(4)
            with meter.phase("data"):
                clock.pass_(8)
        assert spent(meter) == {"other": 1, "data": 10, "compute": 4}
        assert meter.report().mean_ms == pytest.approx(15)
        assert meter.report().share("data") == pytest.approx(10 / 15)

    def test_an_inner_one_interrupts_the_outer_one(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0)
        with meter.step(), meter.phase("data"):
            clock.pass_(1)
            with meter.phase("tokenize"):
                clock.pass_(2)
                with meter.phase("tokenize"):
                    clock.pass_(4)
            clock.pass_(8)
        assert spent(meter) == {"data": 9, "tokenize": 6}

    @given(st.lists(st.lists(st.tuples(st.sampled_from(PHASES), st.integers(0, 50)), max_size=5), min_size=1))
    def test_add_up_to_the_step(self, steps: list[list[tuple[Any, int]]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            clock = Clock()
            patch.setattr(meter_module, "perf_counter", clock)
            meter = tokpress.StepMeter(warmup=0)
            for phases in steps:
                with meter.step():
                    for phase, milliseconds in phases:
                        with meter.phase(phase):
                            clock.pass_(milliseconds)
                        clock.pass_(1)
            report = meter.report()
            whole = sum(milliseconds + 1 for phases in steps for _, milliseconds in phases) / len(steps)
            assert report.mean_ms == pytest.approx(whole)
            assert sum(times.mean_ms for times in report.phases) == pytest.approx(whole)
            assert sum(times.share for times in report.phases) == pytest.approx(1 if whole else 0)

    def test_of_another_thread_are_not_the_step_s(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0)

        def tokenize() -> None:
            with meter.phase("tokenize"):
                clock.pass_(5)

        with meter.step(), meter.phase("data"):
            thread = threading.Thread(target=tokenize)
            thread.start()
            thread.join()
        assert spent(meter) == {"data": 5}

    def test_outside_of_steps_do_not_count(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0)
        with meter.phase("compute"):
            clock.pass_(5)
        with meter.step(), meter.phase("sync"):
            clock.pass_(1)
        with meter.phase("compute"):
            clock.pass_(5)
        assert spent(meter) == {"sync": 1}

    def test_an_unknown_one_is_an_error(self) -> None:
        with pytest.raises(UsageError, match=r"phase 'train' is none of tokenize, data, copy, compute, sync"):
            tokpress.StepMeter().phase("train")  # type: ignore[arg-type]


class TestSteps:
    def test_of_a_wrapped_loader(self, clock: Clock) -> None:
        def batches() -> Iterator[int]:
            for batch in range(3):
                clock.pass_(3)
                yield batch
            clock.pass_(1000)  # to find out that it is over is no step

        meter = tokpress.StepMeter(warmup=0)
        seen = []
        for batch in meter.wrap(batches(), tokens=lambda batch: batch * 10):
            seen.append(batch)
            with meter.phase("compute"):
                clock.pass_(7)
        assert seen == [0, 1, 2]
        assert meter.steps == 3
        assert spent(meter) == {"data": 3, "compute": 7}
        assert meter.report().tokens_per_s == pytest.approx(30 / 0.030)

    @pytest.mark.parametrize("ended_by", ["break", "exception"])
    def test_one_that_was_cut_short_is_not_counted(self, clock: Clock, ended_by: str) -> None:
        meter = tokpress.StepMeter(warmup=0)
        wrapped = meter.wrap(range(5))
        try:
            for batch in wrapped:
                if batch == 2:
                    if ended_by == "break":
                        break
                    raise RuntimeError
        except RuntimeError:
            pass
        wrapped.close()  # type: ignore[attr-defined] # what the garbage collector does at some time
        assert meter.steps == 2
        assert list(meter.wrap("ab")) == ["a", "b"]
        assert meter.steps == 4

    def test_an_exception_in_a_step_is_passed_on(self) -> None:
        meter = tokpress.StepMeter(warmup=0)
        with pytest.raises(ValueError, match="as it was"), meter.step(), meter.phase("compute"):
            raise ValueError("as it was")
        assert meter.steps == 0
        with meter.step():
            pass
        assert meter.steps == 1

    def test_inside_steps_are_an_error(self) -> None:
        meter = tokpress.StepMeter()
        with pytest.raises(UsageError, match="inside a step"), meter.step(), meter.step():
            pass

    def test_while_warming_up_do_not_count(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=2, tokens_per_step=100)
        for milliseconds in (1000, 500, 10, 10):
            with meter.step(), meter.phase("compute"):
                clock.pass_(milliseconds)
        assert meter.steps == 2
        assert meter.report().mean_ms == pytest.approx(10)
        assert meter.report().tokens_per_s == pytest.approx(10_000)

    def test_only_those_of_the_window_are_reported(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0, window=3)
        for milliseconds in (1, 2, 3, 4, 5):
            with meter.step():
                clock.pass_(milliseconds)
        assert (meter.steps, meter.report().steps) == (5, 3)
        assert meter.report().mean_ms == pytest.approx(4)
        assert meter.report(last=1).mean_ms == pytest.approx(5)
        assert meter.report(last=0).mean_ms == 0

    def test_percentiles(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0)
        for milliseconds in range(1, 102):
            with meter.step(), meter.phase("data"):
                clock.pass_(milliseconds)
        report = meter.report()
        assert (report.p50_ms, report.p99_ms) == pytest.approx((51, 100))
        assert (report.phases[1].p50_ms, report.phases[1].p99_ms) == pytest.approx((51, 100))

    @pytest.mark.parametrize("wrong", [{"warmup": -1}, {"window": 0}])
    def test_a_meter_that_could_count_none_is_an_error(self, wrong: dict[str, int]) -> None:
        with pytest.raises(UsageError, match="at least one step"):
            tokpress.StepMeter(**wrong)  # type: ignore[arg-type]


class TestLog:
    def test_a_line_is_about_the_steps_since_the_last_one(self, clock: Clock) -> None:
        meter = tokpress.StepMeter(warmup=0, tokens_per_step=1000)
        for milliseconds in (10, 40):
            for _ in range(5):
                with meter.step(), meter.phase("compute"):
                    clock.pass_(milliseconds)
            rate = f"{1e6 / milliseconds:,.0f} tokens/s · waiting for data 0.0% · compute 100.0%"
            assert meter.line() == f"step {milliseconds}.0 ms (p99 {milliseconds}.0) · {rate}"

    def test_before_the_first_step(self) -> None:
        meter = tokpress.StepMeter()
        assert meter.line() == "step 0.0 ms (p99 0.0) · waiting for data 0.0%"
        assert meter.to_dict()["steps"] == 0


class FakeEvent:
    """A mark in the stream of a device that is told how far it got."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.at = float("inf")

    def record(self) -> None:
        self.at = Queue.launched

    def query(self) -> bool:
        return self.at <= Queue.done

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert self.query(), "the meter would have had to wait"
        assert end_event.query(), "the meter would have had to wait"
        return end_event.at - self.at


class Queue:
    """Milliseconds of work that the device was given, and did."""

    launched = 0.0
    done = 0.0


class TestDevice:
    """With events of a device that is behind the host, as a GPU is; there is none where these tests run."""

    @pytest.fixture(autouse=True)
    def idle(self) -> None:
        Queue.launched = Queue.done = 0.0
        FakeEvent.made = 0

    @pytest.fixture
    def meter(self, monkeypatch: pytest.MonkeyPatch) -> tokpress.StepMeter:
        monkeypatch.setattr(meter_module, "_cuda_event", FakeEvent)
        return tokpress.StepMeter(warmup=0, device="cuda:0", window=50)

    @staticmethod
    def run(meter: tokpress.StepMeter, clock: Clock, compute: float, copy: float = 0.0) -> None:
        with meter.step():
            with meter.phase("copy"):
                Queue.launched += copy
            for _ in range(2):
                with meter.phase("compute"):
                    clock.pass_(1)  # to launch it
                    Queue.launched += compute / 2
            with meter.phase("sync"):
                clock.pass_(8)

    def test_time_is_read_when_the_device_got_there(self, meter: tokpress.StepMeter, clock: Clock) -> None:
        self.run(meter, clock, compute=9, copy=2)
        assert meter.report().phases[3].device_ms is None
        assert meter.report().device_share is None
        self.run(meter, clock, compute=9, copy=2)
        Queue.done = 11
        report = meter.report()
        assert report.phases[PHASES.index("compute")].device_ms == pytest.approx(9)
        assert report.phases[PHASES.index("copy")].device_ms == pytest.approx(2)
        assert report.phases[PHASES.index("compute")].mean_ms == pytest.approx(2)  # the host's own
        assert report.phases[PHASES.index("sync")].device_ms is None
        assert report.device_share == pytest.approx(1.1)
        assert "device busy 110%" in meter.line()
        assert "the device works beside it" in report.note

    def test_events_are_used_again(self, meter: tokpress.StepMeter, clock: Clock) -> None:
        for _ in range(20):
            self.run(meter, clock, compute=9)
            Queue.done = Queue.launched
        assert FakeEvent.made == 12  # of two steps: one is read when the next one ends

    def test_a_device_that_hangs_costs_no_more_than_a_window(self, meter: tokpress.StepMeter, clock: Clock) -> None:
        Queue.done = -1
        for _ in range(120):
            self.run(meter, clock, compute=9)
        assert meter.steps == 120
        Queue.done = Queue.launched
        assert meter.report().phases[PHASES.index("compute")].device_ms == pytest.approx(9)

    def test_of_a_step_that_the_device_has_not_reached_is_not_that_of_the_step_whose_place_it_took(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meter_module, "_cuda_event", FakeEvent)
        meter = tokpress.StepMeter(warmup=0, device="cuda:0", window=2)
        for compute in (4, 8):
            self.run(meter, clock, compute=compute)
            Queue.done = Queue.launched
        meter.report()
        self.run(meter, clock, compute=100)  # in the place of the first one, and not done
        assert meter.report().phases[PHASES.index("compute")].device_ms == pytest.approx(8)

    def test_a_step_that_was_given_up_leaves_nothing_open(self, meter: tokpress.StepMeter, clock: Clock) -> None:
        with pytest.raises(RuntimeError), meter.step(), meter.phase("compute"):
            raise RuntimeError
        self.run(meter, clock, compute=4)
        Queue.done = Queue.launched
        assert meter.report().phases[PHASES.index("compute")].device_ms == pytest.approx(4)

    def test_the_clock_knows_nothing_of_steps_without_phases(self) -> None:
        clock = DeviceClock(2, FakeEvent)
        clock.begin()
        clock.end(0)
        assert clock.times[0].tolist() == [0.0] * (len(PHASES) + 1)

    def test_without_a_gpu_there_is_none(self) -> None:
        assert tokpress.StepMeter().device == "cpu"
        assert "nothing to wait for" in tokpress.StepMeter().report().note


SCRIPT = """
import os, sys
import tokpress
def main():
    meter = tokpress.StepMeter(tokens_per_step=8)
    for batch in meter.wrap(range(int(sys.argv[1]))):
        with meter.phase("compute"):
            sum(range(10_000))
    if os.fork() == 0:
        sys.exit()  # with everything that runs at exit
    os.wait()
    assert not os.path.exists(os.environ["TOKPRESS_METER"]), "a fork wrote the report"
main()
if sys.argv[2:]:
    raise KeyboardInterrupt
"""


class TestReportAtExit:
    @pytest.mark.parametrize("ending", [[], ["interrupted"]])
    def test_is_written_where_the_variable_says(self, tmp_path: Path, ending: list[str]) -> None:
        self.run(tmp_path / "report.json", "11", *ending)
        report = read_report((tmp_path / "report.json").read_bytes())
        assert report.steps == 10  # without the one to warm up
        assert report.share("compute") > 0
        assert json.loads((tmp_path / "report.json").read_bytes()) == report.to_dict()

    def test_of_another_rank_stands_beside_it(self, tmp_path: Path) -> None:
        self.run(tmp_path / "report.json", "3", rank="1")
        assert [path.name for path in tmp_path.iterdir()] == ["report.json.rank1"]

    def test_of_no_steps_is_not_written(self, tmp_path: Path) -> None:
        self.run(tmp_path / "report.json", "0")
        assert list(tmp_path.iterdir()) == []

    @staticmethod
    def run(path: Path, *arguments: str, rank: str = "0") -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOKPRESS_METER", str(path))
            patch.setenv("RANK", rank)
            command = [sys.executable, "-c", SCRIPT, *arguments]
            errors = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60).stderr
            assert not errors or errors.endswith("KeyboardInterrupt\n"), errors
