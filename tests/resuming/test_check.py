"""check-resume: what a trainer is given, in one go and over a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tokpress
from tokpress.errors import TokpressError, UsageError
from tokpress.resuming.check import assert_resumes, check_resume, compare
from tokpress.resuming.record import LOG_VARIABLE, digest, record_step

TRAINER = Path(__file__).with_name("trainer.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("resume")
    lines = (json.dumps({"text": f"document {i} says {i * i} " * 3}) for i in range(60))
    (directory / "a.jsonl").write_text("".join(line + "\n" for line in lines))
    return tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "store").path


def command(store: Path, fault: str = "none") -> list[str]:
    return [sys.executable, str(TRAINER), "--data", str(store), "--out", "{out}", "--fault", fault]


def test_a_trainer_that_goes_on_is_right(store: Path, tmp_path: Path) -> None:
    report = assert_resumes(command(store), stop_after=5, directory=tmp_path)
    assert (report.steps, report.begins) == ([8], [4])  # it saves after every second step


def test_a_batch_that_is_lost_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="1 steps are missing: killed after 5, it goes on at 6"):
        assert_resumes(command(store, "skips"), stop_after=5, directory=tmp_path)


@pytest.mark.parametrize(
    ("killed", "after", "said"),
    [
        (["a", "b"], ["a", "b", "c", "d"], "it began anew: no checkpoint was found"),
        (["a", "b"], ["b", "x", "d"], "after the second start step 2 is given something else"),
        (["a", "x"], ["c", "d"], "step 1 of the killed run is another one than of the whole run"),
        (["a"], ["c", "d"], "1 steps are missing"),
        (["a", "b"], ["c", "d"], None),
        (["a", "b"], ["b", "c", "d"], None),
    ],
)
def test_what_is_compared(killed: list[str], after: list[str], said: str | None) -> None:
    report = compare([["a", "b", "c", "d"]], [killed], [after], 2)
    assert report.ok is (said is None)
    assert (said or "") in " ".join(report.problems)


class TestRefused:
    def test_a_command_without_a_place_for_what_it_saves(self) -> None:
        with pytest.raises(UsageError, match=r"say where it saves: python train\.py --out \{out\}"):
            check_resume(["python", "train.py"], stop_after=2)

    def test_a_trainer_that_trains_nothing(self, store: Path, tmp_path: Path) -> None:
        with pytest.raises(TokpressError, match="was given nothing"):
            check_resume(command(store, "ends"), stop_after=2, directory=tmp_path)

    def test_a_run_that_is_over_before(self, store: Path, tmp_path: Path) -> None:
        with pytest.raises(TokpressError, match="over before it was to be killed"):
            check_resume(command(store), stop_after=80, directory=tmp_path)


def test_a_step_is_recorded_only_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"input_ids": np.arange(4), "weights": np.ones(2)}
    record_step(batch)
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path))
    record_step(batch)
    assert (tmp_path / "0.log").read_text() == digest(batch) + "\n"
    assert digest(batch) == digest({"input_ids": np.arange(4, dtype=np.int32)})
    assert digest(batch) != digest({"input_ids": np.arange(5)})


def test_the_example_s_trainer_from_the_command_line(store: Path, tmp_path: Path) -> None:
    example = [sys.executable, EXAMPLE, "--data", store, "--out", "{out}", "--steps", "6", "--seq-len", "16"]
    words = [
        "check-resume",
        "--stop-after",
        "4",
        "--",
        *map(str, example),
        "--batch-size",
        "2",
        "--checkpoint-every",
        "2",
    ]
    result = subprocess.run([sys.executable, "-m", "tokpress", *words], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "killed after 4, it goes on at step 4 with what the whole run was given" in result.stdout
