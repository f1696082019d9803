"""`tokpress bench`: measures what was asked for, where it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokpress.run.measure import WorkersRate, too_small

from .conftest import Cli

PNG = b"\x89PNG"


class TestWorkers:
    def test_build_on_the_disk_that_is_named(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        scratch = tmp_path / "not-mounted"
        result = cli("bench", "workers", source, "--tokenizer", "bytes", "--up-to", 1, "--scratch", scratch)
        assert result.code == 1
        assert f"error: {scratch}/tokpress-bench-" in result.err

    def test_takes_the_options_of_the_build_it_measures(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "qa.jsonl").write_text(json.dumps({"q": "1 + 1 =", "a": "2"}) + "\n")
        supervised = ("--prompt-field", "q", "--completion-field", "a", "--max-length", 64, "--keep", "a")
        result = cli("bench", "workers", tmp_path / "qa.jsonl", "--tokenizer", "bytes", "--up-to", 1, *supervised)
        assert result.code == 2
        assert "--keep" in result.err  # the very error of the build: --keep names the answer itself
        result = cli(
            "bench", "workers", tmp_path / "qa.jsonl", "--tokenizer", "bytes", "--up-to", 1, "--json", *supervised[:-2]
        )
        assert result.code == 0, result.err
        assert [rate["workers"] for rate in json.loads(result.out)] == [1]
        assert "starting up" in result.err

    def test_draws_what_it_measured(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        plot = tmp_path / "workers.png"
        result = cli("bench", "workers", source, "--tokenizer", "bytes", "--up-to", 1, "--plot", plot)
        assert result.code == 0, result.err
        assert plot.read_bytes().startswith(PNG)


def rate(workers: int, *, seconds: float = 20, started: int | None = None) -> WorkersRate:
    return WorkersRate(
        workers=workers,
        input_mb_per_s=10,
        tokens_per_s=1,
        cpu_use=1,
        peak_memory_bytes=1,
        seconds=seconds,
        started=workers if started is None else started,
    )


class TestTooSmall:
    @pytest.fixture(autouse=True)
    def four_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tokpress.run.measure.usable_cores", lambda: 4)

    def test_nothing_is_said_of_a_good_measurement(self) -> None:
        assert too_small([rate(1), rate(2), rate(4)]) == []

    def test_a_machine_with_fewer_cores_is_named(self) -> None:
        (note,) = too_small([rate(1), rate(8)])
        assert note.startswith("this machine has 4 physical cores")

    def test_inputs_that_are_soon_done_are_named(self) -> None:
        (note,) = too_small([rate(1, seconds=0.84), rate(4, seconds=0.8)])
        assert "one worker needed 0.8 s" in note
        assert "10 s or more" in note

    def test_inputs_that_cannot_be_cut_are_named(self) -> None:
        (note,) = too_small([rate(1), rate(4, started=1)])
        assert "could be cut for 1 workers only" in note
        assert "--unit-size" in note


class TestPlots:
    def test_of_a_tokenizer(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("bench", "tokenizer", source, "--tokenizer", "bytes", "--plot", tmp_path / "t.png")
        assert result.code == 0, result.err
        assert (tmp_path / "t.png").read_bytes().startswith(PNG)

    def test_of_a_loader(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        flags = ("--seq-len", 16, "--batch-size", 2, "--seconds", 0.05)
        result = cli("bench", "loader", store, *flags, "--plot", tmp_path / "l.png")
        assert result.code == 0, result.err
        assert (tmp_path / "l.png").read_bytes().startswith(PNG)

    def test_have_titles_and_units(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from matplotlib.figure import Figure

        from tokpress.figure import plot_bars

        drawn: list[Figure] = []
        monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self))
        plot_bars("x.png", "A title", "MB a second", {"one": 1.0, "two": 2000.0})
        (axes,) = drawn[0].axes
        assert (axes.get_title(), axes.get_xlabel()) == ("A title", "MB a second")
        assert [text.get_text() for text in axes.texts] == ["1", "2,000"]
