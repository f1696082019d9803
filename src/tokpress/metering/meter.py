"""StepMeter: where the time of a training step goes.

In: marks that the loop sets: here a step begins, here a phase of it, here it ends. Out: a `StepReport`. Each moment of a
step belongs to one phase: an inner phase interrupts the one around it, and what is in none is `other`.

The meter waits for nothing. On a GPU, where operations return before they are done, it records CUDA events around `copy`
and `compute` and reads them in later steps, once they have happened. Without a GPU it costs 5 microseconds a step with
three phases (one core of a Xeon at 2.8 GHz).
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import get_ident
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import numpy as np

from tokpress.errors import UsageError
from tokpress.metering.report import PHASES, Phase, StepReport, over_ranks, save_plot, step_table, summarize
from tokpress.storage.local import LocalStorage

if TYPE_CHECKING:
    from rich.table import Table

REPORT_VARIABLE = "TOKPRESS_METER"  # a file for the report, written when the process ends; `tokpress diagnose` sets it
_ON_DEVICE = frozenset({"copy", "compute"})
_OTHER = len(PHASES)  # the last column

Batch = TypeVar("Batch")


class Event(Protocol):
    """A mark in a device's stream, as `torch.cuda.Event` is one."""

    def record(self) -> None: ...

    def query(self) -> bool:
        """Whether the device got there."""
        ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this one to that one, both of which have happened."""
        ...


class StepMeter:
    """Splits steps into tokenize, data, copy, compute and sync; of the thread that begins the steps.

        meter = tokpress.StepMeter(tokens_per_step=8 * 2048)
        for batch in meter.wrap(loader):  # a turn of the loop is a step; waiting for its batch is "data"
            with meter.phase("compute"):
                ...
        print(meter.line())

    `meter.step()` is for loops of another shape. Phases in other threads and outside of steps are not counted.
    `tokens_per_step`: of this rank, for tokens a second. `warmup`: so many steps at the beginning do not count. `window`:
    the report is about the latest so many steps. `device`: whose events to record; by default the current CUDA device,
    if torch is in use and has one, else none ("cpu").
    """

    def __init__(
        self, *, tokens_per_step: int = 0, warmup: int = 1, window: int = 10_000, device: str | None = None
    ) -> None:
        if warmup < 0 or window < 1:
            raise UsageError(f"warmup={warmup}, window={window}: a meter counts at least one step, after 0 or more.")
        self.device = _device() if device is None else device
        self._tokens_per_step = tokens_per_step
        self._window = window
        self._times = np.zeros((window, len(PHASES) + 1))
        self._tokens = np.zeros(window)
        self._steps = -warmup  # those that count; below zero while warming up
        self._steps_told = 0  # in the log
        self._spent = [0.0] * (len(PHASES) + 1)
        self._column, self._since = _OTHER, 0.0
        self._around: list[int] = []  # columns of the phases that the running one has interrupted
        self._thread = 0  # whose step is running
        self._step = _Step(self)
        self._marks = {phase: _Mark(self, column) for column, phase in enumerate(PHASES)}
        self._device_clock = None if self.device == "cpu" else DeviceClock(window, _cuda_event)
        _write_at_exit(self)

    def wrap(self, batches: Iterable[Batch], *, tokens: Callable[[Batch], int] | None = None) -> Iterator[Batch]:
        """The same batches, a step each. A step that a `break` ends is not counted: nobody knows whether it was whole."""
        iterator = iter(batches)
        while True:
            with self.step():
                with self.phase("data"):
                    batch = next(iterator, self)
                if batch is self:
                    self._abandon()
                    return
                if tokens is not None:
                    self._step.tokens = tokens(batch)  # type: ignore[arg-type] # it is a batch
                yield batch  # type: ignore[misc]

    def step(self, *, tokens: int | None = None) -> AbstractContextManager[None]:
        """Around a whole step. One that an exception ends is not counted."""
        self._step.tokens = self._tokens_per_step if tokens is None else tokens
        return self._step

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Around a part of a step, as often in it as there is reason to."""
        try:
            return self._marks[phase]
        except KeyError:
            raise UsageError(f"phase {phase!r} is none of {', '.join(PHASES)}.") from None

    def _begin(self) -> None:
        if self._thread:
            raise UsageError("a step was begun inside a step. Use either meter.wrap or meter.step.")
        self._thread = get_ident()
        self._spent = [0.0] * len(self._spent)
        self._column, self._since = _OTHER, perf_counter()
        if self._device_clock is not None:
            self._device_clock.begin()

    def _end(self, tokens: int) -> None:
        if not self._thread:  # abandoned
            return
        self._switch(_OTHER)
        if self._steps >= 0:
            row = self._steps % self._window
            self._times[row] = self._spent
            self._tokens[row] = tokens
            if self._device_clock is not None:
                self._device_clock.end(row)
        self._steps += 1
        self._abandon()

    def _abandon(self) -> None:
        self._thread = 0
        self._around.clear()

    def _switch(self, column: int) -> None:
        now = perf_counter()
        self._spent[self._column] += now - self._since
        self._column, self._since = column, now

    def _enter(self, column: int) -> None:
        if get_ident() == self._thread:
            self._around.append(self._column)
            self._switch(column)
            if self._device_clock is not None and PHASES[column] in _ON_DEVICE:
                self._device_clock.enter(column)

    def _exit(self) -> None:
        if get_ident() == self._thread and self._around:
            if self._device_clock is not None and PHASES[self._column] in _ON_DEVICE:
                self._device_clock.exit()
            self._switch(self._around.pop())

    @property
    def steps(self) -> int:
        """Counted so far, those that have left the window too."""
        return max(self._steps, 0)

    def report(self, *, last: int | None = None) -> StepReport:
        """Of this rank, over the latest steps: `last` of them, or as many as are known."""
        known = min(self.steps, self._window)
        count = known if last is None else min(last, known)
        rows = np.arange(self.steps - count, self.steps) % self._window
        clock = self._device_clock
        if clock is not None:
            clock.collect()
        return summarize(
            self._times[rows],
            None if clock is None else clock.times[rows],
            float(self._tokens[rows].sum()),
            self.device,
        )

    def over_ranks(self) -> StepReport:
        """Of all ranks, the slowest of them for each figure. Every rank has to call it."""
        return over_ranks(self.report())

    def line(self) -> str:
        """For the log: about the steps since the last line."""
        report = self.report(last=self.steps - self._steps_told)
        self._steps_told = self.steps
        return report.line()

    def table(self) -> Table:
        return step_table(self.report())

    def to_dict(self) -> dict[str, Any]:
        return self.report().to_dict()

    def plot(self, path: str | os.PathLike[str]) -> None:
        """A PNG of the step as a stacked bar."""
        save_plot({"": {times.phase: times.mean_ms for times in self.report().phases}}, path)


class _Step(AbstractContextManager[None]):
    def __init__(self, meter: StepMeter) -> None:
        self._meter = meter
        self.tokens = 0

    def __enter__(self) -> None:
        self._meter._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._meter._end(self.tokens)
        else:
            self._meter._abandon()


class _Mark(AbstractContextManager[None]):
    """Made once for each phase and used by all steps; what is open is the meter's to know."""

    def __init__(self, meter: StepMeter, column: int) -> None:
        self._enter, self._leave, self._column = meter._enter, meter._exit, column

    def __enter__(self) -> None:
        self._enter(self._column)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()


class DeviceClock:
    """Phases by the device's own clock. Events are asked whether they have happened, never waited for."""

    def __init__(self, window: int, new_event: Callable[[], Event]) -> None:
        self.times = np.full((window, len(PHASES) + 1), np.nan)
        self._new_event = new_event
        self._free: list[Event] = []
        self._step: list[tuple[int, Event, Event]] = []  # column, begin, end
        self._open: list[tuple[int, Event]] = []
        self._coming: deque[tuple[int, list[tuple[int, Event, Event]]]] = deque()  # row, phases

    def begin(self) -> None:
        self._step = []
        self._open.clear()

    def enter(self, column: int) -> None:
        self._open.append((column, self._recorded()))

    def exit(self) -> None:
        column, begin = self._open.pop()
        self._step.append((column, begin, self._recorded()))

    def end(self, row: int) -> None:
        self.times[row] = np.nan
        if self._coming and len(self._coming) == len(self.times):  # the device is a whole window behind
            self._coming.popleft()
        self._coming.append((row, self._step))
        self.collect()

    def collect(self) -> None:
        """Reads what has happened."""
        while self._coming and all(end.query() for _, _, end in self._coming[0][1]):
            row, phases = self._coming.popleft()
            self.times[row] = 0.0
            for column, begin, end in phases:
                self.times[row, column] += begin.elapsed_time(end) / 1e3
                self._free += (begin, end)

    def _recorded(self) -> Event:
        event = self._free.pop() if self._free else self._new_event()
        event.record()
        return event


def _device() -> str:
    """The one that torch computes on. Whoever trains with torch has imported it already."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"


def _cuda_event() -> Event:
    import torch

    cuda: Any = torch.cuda
    event: Event = cuda.Event(enable_timing=True)  # recorded on the current stream of the current device
    return event


def _write_at_exit(meter: StepMeter) -> None:
    """If somebody waits for the report: `tokpress diagnose`, or whoever set the variable. Each rank writes its own."""
    target = os.environ.get(REPORT_VARIABLE)
    if not target:
        return
    rank = os.environ.get("RANK", "0")
    path = Path(target) if rank == "0" else Path(f"{target}.rank{rank}")
    process = os.getpid()

    def write() -> None:
        if meter.steps and os.getpid() == process:  # a fork has the meter, too, but no steps of its own
            LocalStorage(path.parent).put(path.name, msgspec.json.encode(meter.report()))

    atexit.register(write)
