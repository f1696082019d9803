"""`tokpress diagnose`: a bad script's faults, a good one's absence of any, and what each way of tokenizing costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from diagnose.scripts import BAD, line_of

from .conftest import Cli

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return path


class TestScript:
    def test_that_is_bad_has_both_faults_named_with_their_shares(self, cli: Cli, bad: Path, bpe: Path) -> None:
        result = cli("diagnose", "--json", "--", sys.executable, bad, bpe, 40)
        assert result.code == 0
        diagnosis: dict[str, Any] = json.loads(result.out)
        tokenizing, reading = diagnosis["faults"]
        own = float(result.err.split("own share ")[1].split()[0])
        assert tokenizing["kind"] == "tokenize"
        assert "one text a call, 4.0 calls a step" in tokenizing["says"]
        assert tokenizing["share"] == pytest.approx(own, abs=0.1)  # the script's own clock
        assert [line["where"].rpartition("/")[2] for line in tokenizing["lines"]] == [
            f"bad.py:{line_of(BAD, 'one by one')}"
        ]
        assert reading["kind"] == "sync"
        assert "1.0 times a step" in reading["says"]
        assert 0 < reading["share"] < 0.5
        assert [line["code"] for line in reading["lines"]] == ["losses.append(loss.item())  # FAULT: each step"]
        assert sum(part["share"] for part in diagnosis["parts"]) == pytest.approx(1)
        assert diagnosis["steps"] == 39

    def test_that_is_bad_in_words_and_under_torchrun(self, cli: Cli, bad: Path, bpe: Path, tmp_path: Path) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
        result = cli("diagnose", "--plot", tmp_path / "step.png", *launcher, bad, bpe, 10)
        assert result.code == 0, result.err
        assert result.out.startswith("own share")
        assert re.search(r"tokenizing +\d+\.\d+% +[\d,.]+ ms", result.err)
        assert "The loop tokenizes, one text a call" in result.err
        assert "The loop reads a result from the device 1.0 times a step" in result.err
        assert "tokpress build INPUTS --tokenizer T --out tokens" in result.err
        assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")

    def test_that_is_good_has_none(self, cli: Cli, shared_store: Path, tmp_path: Path) -> None:
        options = ["--out", tmp_path / "run", "--steps", 12, "--seq-len", 32, "--log-every", 5]
        result = cli("diagnose", "--json", "--", sys.executable, TRAIN, "--data", shared_store, *options)
        assert result.code == 0, result.err
        diagnosis = json.loads(result.out)
        assert diagnosis["source"] == "StepMeter"
        assert diagnosis["steps"] == 11
        assert diagnosis["busiest"] == []  # nobody had to take samples
        assert [fault for fault in diagnosis["faults"] if fault["kind"] in ("tokenize", "sync")] == []

    def test_passes_its_exit_code_on(self, cli: Cli) -> None:
        result = cli("diagnose", sys.executable, "-c", "import sys; print('out'); sys.exit(9)")
        assert (result.code, result.out) == (9, "out\n")
        assert "The script ended with exit code 9." in result.err
        assert "No fault found" not in result.err


class TestWays:
    def test_are_measured(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        shape = ["--seq-len", 16, "--batch-size", 2, "--step-ms", 1, "--steps", 2]
        plot = ["--plot", tmp_path / "ways.png"]
        result = cli("diagnose", "--tokenizer", "bytes", "--inputs", source, *shape, *plot)
        assert result.code == 0, result.err
        for way in ("one by one", "batch", "parallel", "live", "pre-tokenized"):
            assert re.search(rf"{way} +[\d,.]+ +[\d,.]+ ms +[\d.]+% +[\d,]+ +[\d.]+x", result.out), way
        assert (tmp_path / "ways.png").read_bytes().startswith(b"\x89PNG")

    def test_as_json(self, cli: Cli, source: Path) -> None:
        shape = ["--seq-len", 16, "--batch-size", 2, "--step-ms", 1, "--steps", 2]
        result = cli("diagnose", "--tokenizer", "bytes", "--inputs", source, *shape, "--json")
        ways = json.loads(result.out)
        assert [way["name"] for way in ways] == ["one by one", "batch", "parallel", "live", "pre-tokenized"]
        assert all(way["tokens_per_second"] > 0 for way in ways)
        for way in ways:  # the share is of the wait and the step, which takes a millisecond
            assert way["data_wait"] == pytest.approx(way["share"] * (way["data_wait"] + 1e-3))


class TestWrongUsage:
    @pytest.mark.parametrize(
        "arguments",
        [[], ["--tokenizer", "bytes"], ["--inputs", "a"], ["--tokenizer", "bytes", "--inputs", "a", "--", "python"]],
    )
    def test_neither_or_both(self, cli: Cli, arguments: list[str]) -> None:
        result = cli("diagnose", *arguments)
        assert result.code == 2
        assert "give a command after --, or both --tokenizer and --inputs" in result.err

    def test_a_command_that_is_not_there(self, cli: Cli) -> None:
        result = cli("diagnose", "--", "no-such-program")
        assert result.code == 2
        assert "cannot run 'no-such-program'" in result.err

    def test_a_plot_without_matplotlib_is_refused_before_the_run(self) -> None:
        code = "import sys; sys.modules['matplotlib.figure'] = None; from tokpress.cli import main; main()"
        words = ["diagnose", "--plot", "a.png", "--", "echo", "it ran"]
        result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert result.returncode == 2
        assert "pip install 'tokpress[plot]'" in result.stderr
        assert result.stdout == ""
