"""examples/train.py as a user runs it: killed, interrupted, on two ranks, live; its losses are always the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import write_jsonl

import tokpress

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
STEPS = 30
ENV = os.environ | {"OMP_NUM_THREADS": "1"}  # a thread each: tests run side by side
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SMALL: list[object] = ["--seq-len", 24, "--steps", STEPS, "--log-every", 1, "--checkpoint-every", 3]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("train") / "texts.jsonl", texts[:60])


@pytest.fixture(scope="module")
def store(corpus: Path) -> Path:
    return tokpress.build(corpus, tokenizer="bytes", out=corpus.with_name("store")).path


def run(*arguments: object, launcher: tuple[str, ...] = (), code: int = 0) -> str:
    """To its end; what it printed."""
    command = [sys.executable, *launcher, str(TRAIN), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=200)
    assert process.returncode == code, process.stderr
    return process.stdout + process.stderr


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
    assert ours["losses"] == theirs["losses"]
    for name, weights in theirs["model"].items():
        assert torch.equal(ours["model"][name], weights), name
    for number, slots in theirs["optimizer"]["state"].items():
        for name, values in slots.items():
            assert torch.equal(ours["optimizer"]["state"][number][name], values), name
    assert ours["loader"] == theirs["loader"]


HIT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import train
number, step = map(int, sys.argv[2:4])
train_step = train.Trainer.train_step
def hit(self, batches):
    if self.step == step:
        os.kill(os.getpid(), number)
    return train_step(self, batches)
train.Trainer.train_step = hit
sys.argv[1:] = sys.argv[4:]
sys.exit(train.main())
"""


class TestResume:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_at_a_random_step_gives_the_same_losses(
        self, store: Path, whole: Path, tmp_path: Path, number: signal.Signals
    ) -> None:
        arguments: list[object] = ["--data", store, "--out", tmp_path, *SMALL, "--batch-size", 4]
        step = random.randrange(3, STEPS - 1)
        words = [TRAIN.parent, int(number), step, *arguments]
        hit = subprocess.run([sys.executable, "-c", HIT, *map(str, words)], stdout=subprocess.PIPE, text=True, env=ENV)
        stopped = state(tmp_path)["step"]
        if number == signal.SIGINT:
            assert (hit.returncode, stopped) == (130, step + 1)  # the step that ran was finished
            assert f"interrupted after step {stopped}; the same command goes on there" in hit.stdout
        else:
            assert (hit.returncode, stopped) == (-number, step // 3 * 3)
        assert f"going on after step {stopped}" in run(*arguments)
        assert_same_run(tmp_path, whole)
        assert [step for step, _ in state(tmp_path)["losses"]] == list(range(1, STEPS + 1))

    @pytest.mark.parametrize("source", ["data", "live"])
    def test_after_every_step_gives_the_same_losses(
        self, store: Path, corpus: Path, tmp_path: Path, source: str
    ) -> None:
        """Between two logs, too, where part of a loss is added up already."""
        code = """
import sys
sys.path.insert(0, sys.argv[1])
from train import Ranks, Trainer, parse
for out, each_step in ((sys.argv[2], True), (sys.argv[3], False)):
    done = False
    while not done:
        trainer = Trainer(parse([*sys.argv[4:], "--out", out]), Ranks.start())
        trainer.interrupted = each_step
        trainer.run()
        done = trainer.step == trainer.options.steps
"""
        outs = [tmp_path / "resumed", tmp_path / "whole"]
        for out in outs:
            out.mkdir()
        data = ["--data", store] if source == "data" else ["--live", corpus, "--tokenizer", "bytes"]
        shape = ["--seq-len", 24, "--batch-size", 4, "--steps", 12, "--log-every", 5]
        words = [TRAIN.parent, *outs, *data, *shape]
        subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True, env=ENV)
        assert [step for step, _ in state(outs[0])["losses"]] == [5, 10, 12]
        assert_same_run(*outs)

    def test_two_ranks_end_at_the_same_step(self, store: Path, tmp_path: Path) -> None:
        shape = ["--seq-len", 24, "--batch-size", 2, "--steps", 10**6, "--log-every", 3, "--checkpoint-every", 10**6]
        words = [*TWO_RANKS, TRAIN, "--data", store, "--out", tmp_path, *shape]
        command = [sys.executable, *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV, start_new_session=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("3/")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, and torchrun once more
        said, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        assert f"interrupted after step {state(tmp_path)['step']}; the same command goes on there" in said

    def test_of_a_finished_run_does_nothing(self, store: Path, whole: Path) -> None:
        before = (whole / "checkpoint.pt").read_bytes()
        said = run("--data", store, "--out", whole, *SMALL, "--batch-size", 4)
        assert f"going on after step {STEPS}" in said
        assert (whole / "checkpoint.pt").read_bytes() == before


class TestSteps:
    def test_the_loss_falls_and_is_drawn(self, whole: Path) -> None:
        values = [loss for _, loss in state(whole)["losses"]]
        assert values[0] == pytest.approx(5.5, abs=0.5)  # as if every byte were as likely as any other
        assert sum(values[-5:]) / 5 < values[0] - 1
        assert (whole / "loss.png").read_bytes().startswith(b"\x89PNG")

    def test_two_ranks_are_one_with_the_doubled_batch(self, store: Path, whole: Path, tmp_path: Path) -> None:
        run("--data", store, "--out", tmp_path, *SMALL, "--batch-size", 2, launcher=TWO_RANKS)
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
        assert said.startswith(f"error: no store at {tmp_path / 'nothing'}")

    def test_options_that_do_not_go_together(self) -> None:
        wrong = {
            "--live a": "--live needs a --tokenizer",
            "--data a --live b": "not allowed with argument",
            "--data a --steps 0": "--steps must be at least 1",
            "--data a --config huge": "invalid choice: 'huge'",
            "--steps 3": "one of the arguments --data --live is required",
        }
        code = """
import sys
sys.path.insert(0, sys.argv[1])
from train import parse
for words in sys.argv[2:]:
    try:
        parse([*words.split(), "--out", "run"])
    except SystemExit as stop:
        assert stop.code == 2
"""
        command = [sys.executable, "-c", code, str(TRAIN.parent), *wrong]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        for line, reason in zip((line for line in said.splitlines() if "error: " in line), wrong.values(), strict=True):
            assert reason in line
