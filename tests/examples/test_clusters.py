"""The examples for Slurm and Kubernetes, as their schedulers would run them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

import pytest
import yaml  # type: ignore[import-untyped]
from conftest import write_jsonl

import tokpress
from examples.slurm_cluster import missing, slurm

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent
SHARES = 3

# Notes what it is asked to do, instead of doing it on other machines.
SBATCH = """#!/bin/sh
printf '%s\\n' "$@" > "$NOTES/$(ls "$NOTES" | wc -l)"
echo 4711
"""


@pytest.fixture
def corpus(tmp_path: Path, texts: list[str]) -> Path:
    return write_jsonl(tmp_path / "texts.jsonl", texts[:60])


def expected(corpus: Path, tmp_path: Path) -> str:
    return tokpress.build(corpus, tokenizer="bytes", out=tmp_path / "alone").fingerprint


def run(command: list[str], **environment: str) -> None:
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    done = subprocess.run(
        command, env=os.environ | {"PATH": path} | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_slurm(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "notes").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    out = tmp_path / "tokens"
    run(
        ["bash", str(EXAMPLES / "slurm.sh")],
        PATH=os.pathsep.join([str(sbatch.parent), os.environ["PATH"]]),
        NOTES=str(tmp_path / "notes"),
        INPUTS=str(corpus),
        TOKENIZER="bytes",
        OUT=str(out),
        TASKS=str(SHARES),
    )
    shares, seal = ((tmp_path / "notes" / name).read_text().splitlines() for name in "01")
    assert shares[shares.index("--array") + 1] == f"0-{SHARES - 1}"
    assert seal[seal.index("--dependency") + 1] == "afterany:4711"
    for task in range(SHARES):
        array = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(SHARES), "SLURM_ARRAY_TASK_MIN": "0"}
        run(["sh", "-c", shares[-1]], **array)
    run(["sh", "-c", seal[-1]])
    assert tokpress.open(out).fingerprint == expected(corpus, tmp_path)


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_slurm_itself(corpus: Path, tmp_path: Path) -> None:
    """The array and the job after it, as Slurm's own daemons run them on one host."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory, slurm(Path(directory)) as environment:
        out = tmp_path / "tokens"
        options = {"INPUTS": str(corpus), "TOKENIZER": "bytes", "OUT": str(out), "TASKS": str(SHARES)}
        path = os.pathsep.join([str(BIN), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", str(EXAMPLES / "slurm.sh")],
            env=os.environ | environment | options | {"PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        until = monotonic() + 200
        while not (out / "manifest.json").exists():
            said = "".join(path.read_text() for path in sorted(tmp_path.glob("slurm-*.out")))
            assert monotonic() < until, said
            sleep(0.2)
        while subprocess.check_output(["squeue", "--noheader"], env=os.environ | environment):
            sleep(0.1)
    assert len(list(tmp_path.glob("slurm-*_*.out"))) == SHARES
    assert tokpress.open(out).fingerprint == expected(corpus, tmp_path)


def test_kubernetes(corpus: Path, tmp_path: Path) -> None:
    shares, seal = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    container = shares["spec"]["template"]["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment == {"JOB_COMPLETIONS": str(shares["spec"]["completions"])}
    assert shares["spec"]["completionMode"] == "Indexed"
    out = tmp_path / "tokens"
    here = {"/data/in": str(corpus), "/data/tokenizer.json": "bytes", "/data/tokens": str(out)}
    command = [here.get(word, word) for word in container["command"]]
    for index in range(SHARES):
        run(command, JOB_COMPLETION_INDEX=str(index), JOB_COMPLETIONS=str(SHARES))
    run([here.get(word, word) for word in seal["spec"]["template"]["spec"]["containers"][0]["command"]])
    assert tokpress.open(out).fingerprint == expected(corpus, tmp_path)


def test_ray() -> None:
    """The cluster cannot be had here; tests/crash/test_ray.py runs the command on one that can."""
    text = (EXAMPLES / "ray.yaml").read_text()
    cluster = yaml.safe_load(text)
    assert cluster["available_node_types"][cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert "--executor ray --address auto" in text
