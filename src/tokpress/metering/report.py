"""What a meter found: how long steps took, and what they consisted of.

In: times of steps, phase by phase. Out: `StepReport`, a record for a log line, JSON, a table and a plot. Reports of several
ranks become one that has the slowest rank's figures: all of them wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from tokpress.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Phase = Literal["tokenize", "data", "copy", "compute", "sync"]
PHASES: tuple[Phase, ...] = get_args(Phase)
OTHER = "other"  # whatever of a step stands in no phase
REST = "rest"  # compute and whatever else, where nothing says which
NAMES = {
    "tokenize": "tokenizing",
    "data": "waiting for data",
    "copy": "host to device",
    "compute": "compute",
    "sync": "synchronising",
    OTHER: "other",
    REST: "compute and all else",
}
COLOURS = {
    "tokenize": "tab:red",
    "data": "tab:orange",
    "copy": "tab:purple",
    "compute": "tab:green",
    "sync": "tab:brown",
    OTHER: "lightgrey",
    REST: "lightgreen",
}
_CPU_NOTE = "On a CPU an operation is done when it returns: there is nothing to wait for in .item() or a copy."
_DEVICE_NOTE = "Phases are the host's time; the device works beside it, so its own column is no part of their sum."

Times = npt.NDArray[np.float64]


class PhaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Of one phase, in a step."""

    phase: str
    mean_ms: float
    p50_ms: float
    p99_ms: float
    share: float  # of the time of all steps
    device_ms: float | None = None  # what the device took, by its own clock; None: not known, or there is none


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    steps: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    tokens_per_s: float  # of all ranks together
    device: str = "cpu"
    ranks: int = 1
    phases: list[PhaseTimes]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def share(self, phase: str) -> float:
        return next((times.share for times in self.phases if times.phase == phase), 0.0)

    @property
    def device_share(self) -> float | None:
        """How much of a step the device was busy, of which the meter knows; None: there is no device of its own."""
        known = [times.device_ms for times in self.phases if times.device_ms is not None]
        return sum(known) / self.mean_ms if known and self.mean_ms else None

    @property
    def note(self) -> str:
        """What these figures can and cannot tell."""
        return _CPU_NOTE if self.device == "cpu" else _DEVICE_NOTE

    def line(self) -> str:
        """For a log: the step, tokens a second, the wait for data and whatever else takes a tenth of a percent."""
        parts = [f"step {self.mean_ms:.1f} ms (p99 {self.p99_ms:.1f})"]
        if self.tokens_per_s:
            parts.append(f"{self.tokens_per_s:,.0f} tokens/s")
        parts += [
            f"{NAMES[times.phase]} {times.share:.1%}"
            for times in self.phases
            if times.share >= 0.001 or times.phase == "data"
        ]
        if self.device_share is not None:
            parts.append(f"device busy {self.device_share:.0%}")
        return " · ".join(parts)


def read_report(data: bytes) -> StepReport:
    return msgspec.json.decode(data, type=StepReport)


def summarize(times: Times, device_times: Times | None, tokens: float, device: str) -> StepReport:
    """`times`: a row a step, in seconds, a column for each phase and the last for `other`. `device_times`: the same by the
    device's clock; NaN where it is not known."""
    steps = times.sum(axis=1)
    total = float(steps.sum())
    mean, p50, p99 = _spread(steps)
    phases = []
    for column, phase in enumerate((*PHASES, OTHER)):
        phase_mean, phase_p50, phase_p99 = _spread(times[:, column])
        share = float(times[:, column].sum()) / total if total else 0.0
        on_device = None if device_times is None else _known_mean(device_times[:, column])
        phases.append(
            PhaseTimes(
                phase=phase, mean_ms=phase_mean, p50_ms=phase_p50, p99_ms=phase_p99, share=share, device_ms=on_device
            )
        )
    return StepReport(
        steps=len(times),
        mean_ms=mean,
        p50_ms=p50,
        p99_ms=p99,
        tokens_per_s=tokens / total if total else 0.0,
        device=device,
        phases=phases,
    )


def _spread(seconds: Times) -> tuple[float, float, float]:
    """Mean, median and 99th percentile, in milliseconds."""
    if not len(seconds):
        return 0.0, 0.0, 0.0
    p50, p99 = np.percentile(seconds, (50, 99)).tolist()
    return float(seconds.mean()) * 1e3, p50 * 1e3, p99 * 1e3


def _known_mean(seconds: Times) -> float | None:
    known = seconds[~np.isnan(seconds)]
    return float(known.mean()) * 1e3 if len(known) and known.any() else None


def merge_ranks(reports: Sequence[StepReport]) -> StepReport:
    """One for all ranks: each figure is that of the rank for which it is largest; tokens are those of all."""
    phases = [
        PhaseTimes(
            phase=phase,
            mean_ms=max(times.mean_ms for times in same),
            p50_ms=max(times.p50_ms for times in same),
            p99_ms=max(times.p99_ms for times in same),
            share=max(times.share for times in same),
            device_ms=max((times.device_ms for times in same if times.device_ms is not None), default=None),
        )
        for phase, same in zip((*PHASES, OTHER), zip(*(report.phases for report in reports), strict=True), strict=True)
    ]

    def largest(figure: Callable[[StepReport], float]) -> float:
        return max(map(figure, reports))

    return StepReport(
        steps=min(report.steps for report in reports),
        mean_ms=largest(lambda report: report.mean_ms),
        p50_ms=largest(lambda report: report.p50_ms),
        p99_ms=largest(lambda report: report.p99_ms),
        tokens_per_s=sum(report.tokens_per_s for report in reports),
        device=reports[0].device,
        ranks=len(reports),
        phases=phases,
    )


def over_ranks(report: StepReport) -> StepReport:
    """The same on all ranks. A collective call: every rank of torch.distributed makes it, and waits for the others."""
    torch = sys.modules.get("torch")  # whoever has ranks has imported it
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return report
    reports: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(reports, report.to_dict())
    return merge_ranks([msgspec.convert(plain, StepReport) for plain in reports])


def step_table(report: StepReport) -> Table:
    """For a terminal."""
    from rich.table import Table

    with_device = any(times.device_ms is not None for times in report.phases)
    table = Table("", "mean", "p50", "p99", "of the step", box=None)
    if with_device:
        table.add_column(f"on {report.device}")
    for column in table.columns[1:]:
        column.justify = "right"
    for times in report.phases:
        if times.mean_ms or times.device_ms:
            on_device = [f"{times.device_ms:.2f} ms" if times.device_ms is not None else ""] if with_device else []
            table.add_row(NAMES[times.phase], *_cells(times), f"{times.share:.2%}", *on_device)
    table.add_row("a step", *_cells(report), "", style="bold")
    return table


def _cells(times: PhaseTimes | StepReport) -> list[str]:
    return [f"{milliseconds:.2f} ms" for milliseconds in (times.mean_ms, times.p50_ms, times.p99_ms)]


def plot_steps(steps: Mapping[str, Mapping[str, float]], figure: Figure) -> None:
    """A bar for each, stacked of milliseconds by phase: before and after, or way beside way."""
    axes = figure.subplots()
    lefts = np.zeros(len(steps))
    for phase, name in NAMES.items():
        widths = np.array([phases.get(phase, 0.0) for phases in steps.values()])
        if widths.any():
            axes.barh(list(steps), widths, left=lefts, color=COLOURS[phase], label=name)
            lefts += widths
    for row, total in enumerate(lefts.tolist()):
        axes.annotate(f" {total:.1f} ms", (total, row), va="center")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a step, on average")
    if lefts.any():
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)


def save_plot(steps: Mapping[str, Mapping[str, float]], path: str | os.PathLike[str]) -> None:
    """As a PNG."""
    figure = new_figure(9, 2 + 0.5 * len(steps))
    plot_steps(steps, figure)
    figure.savefig(path, dpi=150)
