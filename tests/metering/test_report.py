"""What a meter's report says: in a line, in a table, in a picture, and of all ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import tokpress
from tokpress.figure import new_figure
from tokpress.metering.report import (
    PHASES,
    StepReport,
    merge_ranks,
    over_ranks,
    plot_steps,
    read_report,
    step_table,
    summarize,
)


def report(*, device: bool = False, tokens: int = 1000, **milliseconds: float) -> StepReport:
    """Of 4 equal steps."""
    columns = [*PHASES, "other"]
    times = np.zeros((4, len(columns)))
    for phase, each in milliseconds.items():
        times[:, columns.index(phase)] = each / 1e3
    on_device = times * 2 if device else None
    return summarize(times, on_device, 4 * tokens, "cuda:0" if device else "cpu")


def printed(table: object) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_json_comes_back() -> None:
    original = report(data=1, compute=3, device=True)
    assert read_report(json.dumps(original.to_dict()).encode()) == original


def test_a_line_names_what_there_was() -> None:
    assert report(data=1, compute=3).line() == (
        "step 4.0 ms (p99 4.0) · 250,000 tokens/s · waiting for data 25.0% · compute 75.0%"
    )


class TestTable:
    def test_has_a_row_for_each_phase_that_there_was(self) -> None:
        lines = [line.split() for line in printed(step_table(report(data=1, compute=3))).splitlines()]
        assert lines == [
            ["mean", "p50", "p99", "of", "the", "step"],
            ["waiting", "for", "data", "1.00", "ms", "1.00", "ms", "1.00", "ms", "25.00%"],
            ["compute", "3.00", "ms", "3.00", "ms", "3.00", "ms", "75.00%"],
            ["a", "step", "4.00", "ms", "4.00", "ms", "4.00", "ms"],
        ]

    def test_shows_the_device_where_there_is_one(self) -> None:
        said = printed(step_table(report(compute=3, device=True)))
        assert "on cuda:0" in said
        assert "6.00 ms" in said


class TestPlot:
    def test_is_a_picture(self, tmp_path: Path) -> None:
        meter = tokpress.StepMeter(warmup=0)
        with meter.step(), meter.phase("compute"):
            pass
        meter.plot(tmp_path / "step.png")
        assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")

    def test_stacks_the_phases_of_each_report(self) -> None:
        figure = new_figure(9, 3)
        plot_steps({"before": {"tokenize": 6, "compute": 3}, "after": {"compute": 3, "sync": 0}}, figure)
        (axes,) = figure.axes
        bars = [(bar.get_x(), bar.get_width()) for bars in axes.containers for bar in bars]
        assert bars == [pytest.approx(bar) for bar in ((0, 6), (0, 0), (6, 3), (0, 3))]
        legend = axes.get_legend()
        assert legend is not None
        assert [label.get_text() for label in legend.get_texts()] == ["tokenizing", "compute"]

    def test_of_no_time_is_empty(self) -> None:
        figure = new_figure(9, 3)
        plot_steps({"": {"compute": 0.0}}, figure)
        assert not figure.axes[0].containers


class TestRanks:
    def test_each_figure_is_that_of_the_slowest(self) -> None:
        merged = merge_ranks([report(data=1, compute=3), report(data=4, compute=2, device=True)])
        assert merged.ranks == 2
        assert merged.mean_ms == pytest.approx(6)
        assert [times.mean_ms for times in merged.phases] == pytest.approx([0, 4, 0, 3, 0, 0])
        assert merged.share("data") == pytest.approx(4 / 6)
        assert merged.share("compute") == pytest.approx(3 / 4)
        assert merged.phases[3].device_ms == pytest.approx(4)
        assert merged.tokens_per_s == pytest.approx(1000 / 0.004 + 1000 / 0.006)

    def test_of_a_single_one_is_itself(self) -> None:
        alone = report(data=1)
        assert over_ranks(alone) == alone

    def test_of_two_processes(self, tmp_path: Path) -> None:
        code = """
import sys, time
import torch.distributed as dist
import tokpress
store, rank, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
meter = tokpress.StepMeter(warmup=0, tokens_per_step=10)
for _ in range(3):
    with meter.step(), meter.phase("data" if rank else "compute"):
        time.sleep(0.01)
open(out, "w").write(__import__("json").dumps([meter.to_dict(), meter.over_ranks().to_dict()]))
dist.destroy_process_group()
"""
        outs = [tmp_path / f"{rank}.json" for rank in range(2)]
        ranks = [
            subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "meet"), str(rank), str(out)])
            for rank, out in enumerate(outs)
        ]
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
        (own0, all0), (own1, all1) = (json.loads(out.read_text()) for out in outs)
        assert all0 == all1
        assert all0["ranks"] == 2
        by_phase = dict(zip((*PHASES, "other"), all0["phases"], strict=True))
        assert by_phase["compute"]["mean_ms"] == own0["phases"][3]["mean_ms"] > 0
        assert by_phase["data"]["mean_ms"] == own1["phases"][1]["mean_ms"] > 0
        assert all0["tokens_per_s"] == pytest.approx(own0["tokens_per_s"] + own1["tokens_per_s"])
