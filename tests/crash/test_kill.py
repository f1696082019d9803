"""A run that is killed, anywhere, goes on where it was and ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from crash.building import SUPERVISED, check_honest, contents, finish, kill_someone, start, write_corpus

ROUNDS = int(os.environ.get("TOKPRESS_CRASH_ROUNDS", "6"))
FIRST_SEED = int(os.environ.get("TOKPRESS_CRASH_SEED", "0"))
KILLS_A_ROUND = 4  # at least


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("crash") / "in", 0)


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, bytes]]:
    """Of plain text, and of supervised data with two splits."""
    stores = {}
    for supervised in (False, True):
        out = tmp_path_factory.mktemp("crash") / "uninterrupted"
        code, errors = finish(start(corpus, out, "--workers", "1", *(SUPERVISED if supervised else [])))
        assert code == 0, errors
        stores[supervised] = contents(out)
    assert len(stores[True]) > len(stores[False])
    return stores


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_after_random_kills_the_store_is_the_same(
    seed: int, corpus: list[Path], expected: dict[bool, dict[str, bytes]], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    supervised = seed % 3 == 1
    options = SUPERVISED if supervised else []
    out = tmp_path / "store"
    kills = 0
    while kills < KILLS_A_ROUND:
        process = start(corpus, out, "--workers", str(rng.choice([2, 3])), *options)
        for _ in range(rng.choice([1, 2, 3])):
            try:
                process.wait(rng.uniform(0.2, 2.5))
                break
            except subprocess.TimeoutExpired:
                kills += kill_someone(process, rng)
        code, errors = finish(process)
        assert code in (0, -9), f"seed {seed}: {errors}"
        check_honest(out)
        if code == 0:
            assert contents(out) == expected[supervised], f"seed {seed}"
            shutil.rmtree(out)
    code, errors = finish(start(corpus, out, "--workers", "2", *options))
    assert code == 0, f"seed {seed}: {errors}"
    check_honest(out)
    assert contents(out) == expected[supervised], f"seed {seed}"
