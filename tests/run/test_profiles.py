"""`--profile FILE`: one file of all workers, and nothing beside it."""

from __future__ import annotations

import pstats
from pathlib import Path

import pytest

import tokpress

from .jobs import write_texts


@pytest.mark.parametrize("workers", [1, 2])
def test_is_of_all_workers_in_one_file(tmp_path: Path, workers: int) -> None:
    inputs = [write_texts(tmp_path / f"{name}.jsonl", 20) for name in "abc"]
    profile = tmp_path / "profiles" / "build.prof"
    profile.parent.mkdir()
    tokpress.build(inputs, tokenizer="bytes", out=tmp_path / "store", workers=workers, unit_size=100, profile=profile)
    assert [path.name for path in profile.parent.iterdir()] == ["build.prof"]
    calls = {name: count for (_, _, name), (_, count, *_) in pstats.Stats(str(profile)).stats.items()}  # type: ignore[attr-defined]
    assert calls["close_shard"] == len(tokpress.open(tmp_path / "store").plan.units)
