"""Two writers of one unit do no harm: one that was frozen, declared dead and replaced goes on, and no byte changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from crash.building import check_honest, contents, finish, start, write_corpus

SEEDS = 50 if os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1" else 4
FIRST_SEED = int(os.environ.get("TOKPRESS_CRASH_SEED", "0"))
WORKER = "tokpress.run.clusters.serve"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("two") / "in", 0)[:1]


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("two") / "alone"
    code, errors = finish(start(corpus, out, "--workers", "1"))
    assert code == 0, errors
    return contents(out)


def freeze_a_writer(process: subprocess.Popen[bytes], out: Path, rng: random.Random) -> psutil.Process | None:
    """Stops a worker while it has a file open that it has not committed; None if the run ended first."""
    shards = rng.randrange(0, 12)  # that exist by then
    while process.poll() is None:
        if len(list((out / "shards").glob("*.json"))) < shards:
            continue
        for child in psutil.Process(process.pid).children():
            try:
                if WORKER not in " ".join(child.cmdline()):
                    continue
                child.suspend()
                if any(file.path.endswith(".tmp") for file in child.open_files()):
                    return child
                child.resume()
            except psutil.NoSuchProcess:
                continue
    return None


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_frozen_writer_that_goes_on_changes_no_byte(
    seed: int, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    for attempt in range(10):
        out = tmp_path / str(attempt)
        first = start(corpus, out, "--workers", "2")
        frozen = freeze_a_writer(first, out, rng)
        if frozen is not None:
            break
        finish(first)
    else:
        pytest.fail(f"seed {seed}: no writer was met at work")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert first.stderr is not None
    first.stderr.close()
    try:
        code, errors = finish(start(corpus, out, "--workers", str(rng.choice([1, 2]))))  # its successor
        assert code == 0, f"seed {seed}: {errors}"
        check_honest(out)
        assert contents(out) == expected, f"seed {seed}"
    finally:
        frozen.resume()
    frozen.wait(60)
    check_honest(out)
    assert contents(out) == expected, f"seed {seed}: the one that was frozen changed something"
