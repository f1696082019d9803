"""Training steps over time, from what a `StepMeter` or a `StepLogger` wrote.

In: a file with one report (`TOKPRESS_METER`), or a line of JSON for each: reports of `StepMeter.to_dict()`, or the values of
a `StepLogger`. Out: `TrainingView`: milliseconds of each phase, step after step.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from tokpress.errors import InputError
from tokpress.metering.report import StepReport

_MOST_POINTS = 400
_MOST_BYTES = 64 * 10**6


class TrainingPoint(msgspec.Struct, frozen=True, kw_only=True):
    step: int  # the last that it is about
    mean_ms: float
    p99_ms: float
    tokens_per_s: float
    phases: dict[str, float]  # milliseconds of a step


class TrainingView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    points: list[TrainingPoint]
    looked_at: int  # lines; more than there are points: every so many are shown
    latest: StepReport | None  # where the file has reports


def read_training(path: str | os.PathLike[str]) -> TrainingView:
    """The file as it is now; a line that is being written is left out."""
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{name} cannot be read: {error.strerror}. It is there when the training has written it."
        ) from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{name} has more than {_MOST_BYTES // 10**6} MB, too many steps to show. Log every so many.")
    points: list[TrainingPoint] = []
    latest: StepReport | None = None
    lines = data.splitlines() if data.count(b"\n") > 1 and data.lstrip()[:1] == b"{" else [data]
    try:
        lines = lines if len(lines) == 1 or _is_line(lines[0]) else [data]
        for line in lines:
            if line.strip():
                point, report = _point(msgspec.json.decode(line), points[-1].step if points else 0)
                points.append(point)
                latest = report or latest
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, KeyError, TypeError) as error:
        if not points or not data or data.endswith(b"\n"):
            raise InputError(
                f"{name} is no report of a StepMeter: {error}. Write one: json.dumps(meter.to_dict()), a line each."
            ) from error
    every = -(-len(points) // _MOST_POINTS) or 1
    return TrainingView(name=name, points=points[::-1][::every][::-1], looked_at=len(points), latest=latest)


def _is_line(line: bytes) -> bool:
    """Whether a file is a line for each report, and not one report over several lines."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _point(plain: Any, before: int) -> tuple[TrainingPoint, StepReport | None]:
    if "phases" in plain:
        report = msgspec.convert(plain, StepReport)
        return TrainingPoint(
            step=before + report.steps,
            mean_ms=report.mean_ms,
            p99_ms=report.p99_ms,
            tokens_per_s=report.tokens_per_s,
            phases={times.phase: times.mean_ms for times in report.phases},
        ), report
    mean = float(plain["step_ms"])
    shares = {name.removeprefix("share_"): float(value) for name, value in plain.items() if name.startswith("share_")}
    return TrainingPoint(
        step=int(plain.get("step", before + 1)),
        mean_ms=mean,
        p99_ms=float(plain.get("step_p99_ms", mean)),
        tokens_per_s=float(plain.get("tokens_per_s", 0.0)),
        phases={name: share * mean for name, share in shares.items()},
    ), None
