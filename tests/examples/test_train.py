"""examples/train.py as a user runs it: killed, interrupted, on two ranks, live; its losses are always the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

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


class Ended(NamedTuple):
    code: int
    said: str


IN_TURN = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import train
ended = {}
for name, arguments in json.loads(sys.argv[2]).items():
    sys.argv[1:] = arguments
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = train.main()
        except SystemExit as stop:
            code = stop.code
    ended[name] = [code, said.getvalue()]
print(json.dumps(ended))
"""


def run_in_turn(runs: dict[str, list[object]]) -> dict[str, Ended]:
    """Several commands in one process: to import torch takes longer than to train."""
    words = json.dumps({name: list(map(str, arguments)) for name, arguments in runs.items()})
    told = subprocess.check_output([sys.executable, "-c", IN_TURN, str(TRAIN.parent), words], env=ENV, timeout=200)
    return {name: Ended(*ended) for name, ended in json.loads(told).items()}


def state(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(out / "checkpoint.pt", weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Runs that nobody interrupted, and some that never begin."""
    out = tmp_path_factory.mktemp("runs")
    data: list[object] = ["--data", store]
    whole: list[object] = [*data, "--out", out / "whole", *SMALL, "--batch-size", 4]
    ended = run_in_turn(
        {
            "whole": whole,
            "whole, again": whole,
            "halves": [*data, "--out", out / "halves", *SMALL, "--batch-size", 2, "--accumulate", 2],
            "bfloat16": [*data, "--out", out / "bfloat16", *SMALL, "--batch-size", 4, "--precision", "bfloat16"],
            "another batch": [*data, "--out", out / "whole", *SMALL, "--batch-size", 8],
            "no store": ["--data", out / "nothing", "--out", out / "x"],
            "live without a tokenizer": ["--live", "a", "--out", out / "x"],
            "both": ["--live", "a", *data, "--out", out / "x"],
            "neither": ["--out", out / "x"],
            "no steps": [*data, "--out", out / "x", "--steps", 0],
            "an unknown config": [*data, "--out", out / "x", "--config", "huge"],
            "8 bits": [*data, "--out", out / "x", "--optimizer", "adamw8bit"],
        }
    )
    return ended | {"": Ended(0, str(out))}


@pytest.fixture(scope="module")
def outs(runs: dict[str, Ended]) -> Path:
    return Path(runs[""].said)


@pytest.fixture(scope="module")
def whole(outs: Path) -> Path:
    """A run that nobody interrupted."""
    return outs / "whole"


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
    def test_at_a_random_step_gives_the_same_losses(self, store: Path, whole: Path, tmp_path: Path) -> None:
        arguments: dict[str, list[object]] = {}
        stopped = {}
        for number in (signal.SIGKILL, signal.SIGINT):
            out, step = tmp_path / number.name, random.randrange(3, STEPS - 1)
            arguments[number.name] = ["--data", store, "--out", out, *SMALL, "--batch-size", 4]
            words = [TRAIN.parent, int(number), step, *arguments[number.name]]
            command = [sys.executable, "-c", HIT, *map(str, words)]
            hit = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=ENV)
            stopped[number.name] = state(out)["step"]
            if number == signal.SIGINT:  # the step that ran was finished
                assert (hit.returncode, stopped[number.name]) == (130, step + 1)
                assert f"interrupted after step {step + 1}; the same command goes on there" in hit.stdout
            else:
                assert (hit.returncode, stopped[number.name]) == (-number, step // 3 * 3)
        for name, ended in run_in_turn(arguments).items():
            assert ended.code == 0
            assert f"going on after step {stopped[name]}" in ended.said
            assert_same_run(tmp_path / name, whole)
            assert [step for step, _ in state(tmp_path / name)["losses"]] == list(range(1, STEPS + 1))

    def test_after_every_step_gives_the_same_losses(self, store: Path, corpus: Path, tmp_path: Path) -> None:
        """Between two logs, too, where part of a loss is added up already; from a store and live."""
        code = """
import json, sys
sys.path.insert(0, sys.argv[1])
from train import Ranks, Trainer, parse
for each_step, arguments in json.loads(sys.argv[2]):
    done = False
    while not done:
        trainer = Trainer(parse(arguments), Ranks.start())
        trainer.interrupted = each_step
        done = trainer.run()
"""
        shape: list[object] = ["--seq-len", 24, "--batch-size", 4, "--steps", 12, "--log-every", 5]
        sources: dict[str, list[object]] = {
            "data": ["--data", store],
            "live": ["--live", corpus, "--tokenizer", "bytes"],
        }
        runs = []
        for name, source in sources.items():
            for each_step in (True, False):
                out = tmp_path / f"{name}-{each_step}"
                out.mkdir()
                runs.append([each_step, list(map(str, [*source, *shape, "--out", out]))])
        subprocess.run([sys.executable, "-c", code, str(TRAIN.parent), json.dumps(runs)], check=True, env=ENV)
        for name in sources:
            assert [step for step, _ in state(tmp_path / f"{name}-True")["losses"]] == [5, 10, 12]
            assert_same_run(tmp_path / f"{name}-True", tmp_path / f"{name}-False")

    def test_two_ranks_end_at_the_same_step(self, store: Path, tmp_path: Path) -> None:
        shape = ["--seq-len", 24, "--batch-size", 2, "--steps", 10**6, "--log-every", 3, "--checkpoint-every", 10**6]
        words = [*TWO_RANKS, TRAIN, "--data", store, "--out", tmp_path, *shape]
        command = [sys.executable, *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV, start_new_session=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("3/")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, and torchrun once more
        said, _ = process.communicate(timeout=120)
        assert process.returncode != 0
        assert f"interrupted after step {state(tmp_path)['step']}; the same command goes on there" in said

    def test_of_a_finished_run_trains_no_further(self, runs: dict[str, Ended]) -> None:
        assert runs["whole, again"].code == 0
        assert f"going on after step {STEPS}" in runs["whole, again"].said
        assert " · loss " not in runs["whole, again"].said


class TestSteps:
    def test_the_loss_falls_and_is_drawn(self, whole: Path) -> None:
        values = [loss for _, loss in state(whole)["losses"]]
        assert values[0] == pytest.approx(5.5, abs=0.5)  # as if every byte were as likely as any other
        assert sum(values[-5:]) / 5 < values[0] - 1
        assert (whole / "loss.png").read_bytes().startswith(b"\x89PNG")

    def test_two_ranks_are_one_with_the_doubled_batch(self, store: Path, whole: Path, tmp_path: Path) -> None:
        words = [*TWO_RANKS, TRAIN, "--data", store, "--out", tmp_path, *SMALL, "--batch-size", 2]
        for _ in range(3):  # torch may abort a rank that is done, in a thread of its own: then the same command goes on
            ended = subprocess.run([sys.executable, *map(str, words)], capture_output=True, env=ENV, timeout=200)
            if ended.returncode == 0:
                break
            assert b"terminate called without an active exception" in ended.stderr, ended.stderr.decode()
        assert ended.returncode == 0
        self.assert_close(tmp_path, whole)

    def test_two_halves_are_one_whole(self, outs: Path, whole: Path) -> None:
        self.assert_close(outs / "halves", whole)

    @staticmethod
    def assert_close(out: Path, whole: Path) -> None:
        ours, theirs = state(out), state(whole)
        assert ours["losses"] == [(step, pytest.approx(loss, rel=1e-3)) for step, loss in theirs["losses"]]
        assert ours["loader"]["digest"] == theirs["loader"]["digest"]  # the same samples
        for name, weights in theirs["model"].items():
            torch.testing.assert_close(ours["model"][name], weights, rtol=1e-2, atol=1e-3)

    def test_in_half_precision_the_loss_falls_too(self, outs: Path) -> None:
        values = [loss for _, loss in state(outs / "bfloat16")["losses"]]
        assert sum(values[-5:]) / 5 < values[0] - 1


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "code", "reason"),
        [
            ("another batch", 2, "was trained with sequences a step 4, now it is 8"),
            ("no store", 1, "error: no store at "),
            ("live without a tokenizer", 2, "--live needs a --tokenizer"),
            ("both", 2, "not allowed with argument"),
            ("neither", 2, "one of the arguments --data --live is required"),
            ("no steps", 2, "--steps must be at least 1"),
            ("an unknown config", 2, "invalid choice: 'huge'"),
        ],
    )
    def test_is_what_cannot_be_done(self, runs: dict[str, Ended], name: str, code: int, reason: str) -> None:
        assert runs[name].code == code
        assert reason in runs[name].said

    def test_are_eight_bits_without_their_package(self, runs: dict[str, Ended]) -> None:
        if find_spec("bitsandbytes"):
            pytest.skip("bitsandbytes is installed")
        said = "error: --optimizer adamw8bit needs bitsandbytes. Install it: pip install bitsandbytes\n"
        assert runs["8 bits"] == (2, said)
