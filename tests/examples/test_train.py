"""examples/train.py as a user runs it: killed, interrupted, on two ranks, live; its losses are always the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import write_jsonl

import tokpress

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
STEPS = 40
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # two tests at a time have two cores
SMALL: list[object] = ["--seq-len", 24, "--steps", STEPS, "--log-every", 1, "--checkpoint-every", 3]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("train") / "texts.jsonl", texts[:60])


@pytest.fixture(scope="module")
def store(corpus: Path) -> Path:
    return tokpress.build(corpus, tokenizer="bytes", out=corpus.with_name("store")).path


def start(*arguments: object, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, *launcher, str(TRAIN), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | ONE_THREAD)


def run(*arguments: object, launcher: tuple[str, ...] = (), code: int = 0) -> str:
    """To its end; what it printed."""
    process = start(*arguments, launcher=launcher)
    out, err = process.communicate(timeout=200)
    assert process.returncode == code, err
    return out + err


def state(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(out / "checkpoint.pt", weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole")
    run("--data", store, "--out", out, *SMALL, "--batch-size", 4)
    return out


def assert_same_run(out: Path, whole: Path) -> None:
    """Bit for bit: losses, weights, the optimizer and the place in the data."""
    ours, theirs = state(out), state(whole)
    assert [step for step, _ in ours["losses"]] == list(range(1, STEPS + 1))
    assert ours["losses"] == theirs["losses"]
    for name, weights in theirs["model"].items():
        assert torch.equal(ours["model"][name], weights), name
    for number, slots in theirs["optimizer"]["state"].items():
        for name, values in slots.items():
            assert torch.equal(ours["optimizer"]["state"][number][name], values), name
    assert ours["loader"] == theirs["loader"]


def lines_until(process: subprocess.Popen[str], step: int) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if line.startswith(f"{step}/"):
            return
    pytest.fail(f"it ended before step {step}: {process.communicate()[1]}")


class TestResume:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_at_a_random_step_gives_the_same_losses(
        self, store: Path, whole: Path, tmp_path: Path, number: signal.Signals
    ) -> None:
        arguments: list[object] = ["--data", store, "--out", tmp_path, *SMALL, "--batch-size", 4]
        step = random.randrange(3, STEPS - 5)
        process = start(*arguments)
        assert list(lines_until(process, step))
        process.send_signal(number)
        said, errors = process.communicate(timeout=60)
        assert process.returncode == (130 if number == signal.SIGINT else -number), errors
        stopped = state(tmp_path)["step"]
        assert stopped < STEPS
        if number == signal.SIGINT:
            assert f"interrupted after step {stopped}; the same command goes on there" in said
            assert stopped >= step
        assert f"going on after step {stopped}" in run(*arguments)
        assert_same_run(tmp_path, whole)

    def test_between_two_logs_keeps_what_was_added_up(self, store: Path, tmp_path: Path) -> None:
        """A checkpoint every 3 steps, a log every 5: killed at 5, it goes on from 3."""
        arguments: list[object] = ["--data", store, "--batch-size", 4, "--log-every", 5, "--checkpoint-every", 3]
        shape: list[object] = ["--seq-len", 24, "--steps", 200]
        process = start(*arguments, *shape, "--out", tmp_path / "killed")
        lines = list(lines_until(process, 5))
        process.kill()
        process.communicate()
        assert state(tmp_path / "killed")["step"] % 3 == 0
        process = start(*arguments, *shape, "--out", tmp_path / "killed")
        again = list(lines_until(process, 10))
        process.kill()
        process.communicate()
        process = start(*arguments, *shape, "--out", tmp_path / "whole")
        expected = list(lines_until(process, 10))
        process.kill()
        process.communicate()
        assert losses(lines) == losses(expected)[:1]
        assert losses(again)[-1] == losses(expected)[-1]

    def test_of_a_finished_run_does_nothing(self, store: Path, whole: Path) -> None:
        before = (whole / "checkpoint.pt").read_bytes()
        said = run("--data", store, "--out", whole, *SMALL, "--batch-size", 4)
        assert f"going on after step {STEPS}" in said
        assert (whole / "checkpoint.pt").read_bytes() == before

    def test_live_gives_the_same_losses(self, corpus: Path, tmp_path: Path) -> None:
        arguments: list[object] = ["--live", corpus, "--tokenizer", "bytes", *SMALL, "--batch-size", 4]
        process = start(*arguments, "--out", tmp_path / "killed")
        assert list(lines_until(process, random.randrange(3, STEPS - 5)))
        process.kill()
        process.communicate()
        for out in ("killed", "whole"):
            run(*arguments, "--out", tmp_path / out)
        assert_same_run(tmp_path / "killed", tmp_path / "whole")


def losses(lines: list[str]) -> list[str]:
    return [line.split(" · ")[1] for line in lines if " · loss " in line]


class TestSteps:
    def test_the_loss_falls_and_is_drawn(self, whole: Path) -> None:
        values = [loss for _, loss in state(whole)["losses"]]
        assert values[0] == pytest.approx(5.5, abs=0.5)  # as if every byte were as likely as any other
        assert sum(values[-5:]) / 5 < values[0] - 1
        assert (whole / "loss.png").read_bytes().startswith(b"\x89PNG")

    def test_two_ranks_are_one_with_the_doubled_batch(self, store: Path, whole: Path, tmp_path: Path) -> None:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        run("--data", store, "--out", tmp_path, *SMALL, "--batch-size", 2, launcher=launcher)
        self.assert_close(tmp_path, whole)

    def test_two_halves_are_one_whole(self, store: Path, whole: Path, tmp_path: Path) -> None:
        run("--data", store, "--out", tmp_path, *SMALL, "--batch-size", 2, "--accumulate", 2)
        self.assert_close(tmp_path, whole)

    @staticmethod
    def assert_close(out: Path, whole: Path) -> None:
        ours, theirs = state(out), state(whole)
        assert ours["losses"] == [(step, pytest.approx(loss, rel=1e-3)) for step, loss in theirs["losses"]]
        assert ours["loader"]["digest"] == theirs["loader"]["digest"]  # the same samples
        for name, weights in theirs["model"].items():
            torch.testing.assert_close(ours["model"][name], weights, rtol=1e-2, atol=1e-3)

    def test_in_half_precision_the_loss_falls_too(self, store: Path, tmp_path: Path) -> None:
        run("--data", store, "--out", tmp_path, *SMALL, "--batch-size", 4, "--precision", "bfloat16")
        values = [loss for _, loss in state(tmp_path)["losses"]]
        assert sum(values[-5:]) / 5 < values[0] - 1


class TestRefused:
    def test_other_options_than_the_checkpoint_s(self, store: Path, whole: Path) -> None:
        said = run("--data", store, "--out", whole, *SMALL, "--batch-size", 8, code=2)
        assert "was trained with sequences a step 4, now it is 8" in said
        assert "Give the same options, or another --out." in said

    def test_eight_bits_without_their_package(self, store: Path, tmp_path: Path) -> None:
        if find_spec("bitsandbytes"):
            pytest.skip("bitsandbytes is installed")
        said = run("--data", store, "--out", tmp_path, "--optimizer", "adamw8bit", code=2)
        assert said == "error: --optimizer adamw8bit needs bitsandbytes. Install it: pip install bitsandbytes\n"

    def test_a_store_that_is_not_there(self, tmp_path: Path) -> None:
        said = run("--data", tmp_path / "nothing", "--out", tmp_path / "run", code=1)
        assert said.startswith(f"error: {tmp_path / 'nothing'}")

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            (["--live", "a"], "--live needs a --tokenizer"),
            (["--data", "a", "--live", "b"], "not allowed with argument"),
            (["--data", "a", "--steps", "0"], "--steps must be at least 1"),
        ],
    )
    def test_options_that_do_not_go_together(self, tmp_path: Path, wrong: list[str], reason: str) -> None:
        assert reason in run(*wrong, "--out", tmp_path, code=2)
