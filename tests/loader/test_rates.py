"""`tokpress bench loader` on a real store."""

from __future__ import annotations

import json
from itertools import count

import pytest
from click.testing import CliRunner

import tokpress
from tokpress.cli import tokpress as command_line
from tokpress.errors import StoreError
from tokpress.loader import rates


def test_measures_every_way(store: tokpress.Store) -> None:
    arguments = [
        "bench",
        "loader",
        str(store.path),
        "--seq-len",
        "16",
        "--batch-size",
        "4",
        "--seconds",
        "0.01",
        "--json",
    ]
    result = CliRunner().invoke(command_line, arguments)
    assert result.exception is None, result.output
    measured = json.loads(result.stdout)
    assert [rate["way"] for rate in measured][:2] == ["input_ids", "input_ids, 1 thread"]
    for rate in measured:
        assert rate["tokens_per_s"] == rate["batches_per_s"] * 64 > 0
        assert rate["first_batch_ms"] > 0
    assert "M tokens/s" in result.stderr


def test_the_first_batch_is_timed_in_milliseconds(store: tokpress.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by half a second whenever it is looked at."""
    clock = count()
    monkeypatch.setattr(rates, "perf_counter", lambda: next(clock) / 2)
    found = rates.loader_rates(str(store.path), seq_len=16, method="concat", batch_size=4, split="train", seconds=0.1)
    assert {rate.first_batch_ms for rate in found} == {500.0}


def test_the_split_that_was_asked_for(store: tokpress.Store) -> None:
    result = CliRunner().invoke(command_line, ["bench", "loader", str(store.path), "--split", "val"])
    assert isinstance(result.exception, StoreError)
    assert "no split 'val'" in str(result.exception)


def test_a_store_that_there_is_not() -> None:
    result = CliRunner().invoke(command_line, ["bench", "loader", "nowhere"])
    assert isinstance(result.exception, StoreError)
