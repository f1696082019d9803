"""What a meter wrote, over time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress
from tokpress.errors import InputError
from tokpress.metering.loggers import StepLogger
from tokpress.view import read_training


def metered(steps: int) -> tokpress.StepMeter:
    meter = tokpress.StepMeter(warmup=0, tokens_per_step=10)
    for _ in range(steps):
        with meter.step(), meter.phase("compute"):
            pass
    return meter


def test_one_report(tmp_path: Path) -> None:
    meter = metered(5)
    (tmp_path / "m.json").write_text(json.dumps(meter.to_dict(), indent=1))
    view = read_training(tmp_path / "m.json")
    assert view.latest == meter.report()
    assert (len(view.points), view.points[0].step) == (1, 5)
    assert view.points[0].phases["compute"] > 0


def test_a_line_each(tmp_path: Path) -> None:
    meter = metered(5)
    (tmp_path / "m.jsonl").write_text(3 * (json.dumps(meter.to_dict()) + "\n") + '{"steps": ')
    view = read_training(tmp_path / "m.jsonl")
    assert [point.step for point in view.points] == [5, 10, 15]


def test_values_of_a_logger(tmp_path: Path) -> None:
    meter = metered(5)
    path = tmp_path / "v.jsonl"

    def write(step: int, values: dict[str, float | str]) -> None:
        path.write_text(json.dumps({"step": step} | values) + "\n")

    logger = StepLogger(meter, write, every=5)
    logger.step(5)
    (point,) = read_training(path).points
    assert (point.step, point.mean_ms) == (5, meter.report().mean_ms)
    assert sum(point.phases.values()) == pytest.approx(point.mean_ms)


def test_anything_else_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(InputError, match="no report of a StepMeter"):
        read_training(tmp_path / "x")
    with pytest.raises(InputError, match="cannot be read"):
        read_training(tmp_path / "missing")
