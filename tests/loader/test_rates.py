"""`tokpress bench loader` on a real store."""

from __future__ import annotations

import json

from click.testing import CliRunner

import tokpress
from tokpress.cli import tokpress as command_line
from tokpress.errors import StoreError


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
    rates = json.loads(result.stdout)
    assert [rate["way"] for rate in rates][:2] == ["input_ids", "input_ids, 1 thread"]
    for rate in rates:
        assert rate["tokens_per_s"] == rate["batches_per_s"] * 64 > 0
        assert rate["first_batch_ms"] > 0
    assert "M tokens/s" in result.stderr


def test_the_split_that_was_asked_for(store: tokpress.Store) -> None:
    result = CliRunner().invoke(command_line, ["bench", "loader", str(store.path), "--split", "val"])
    assert isinstance(result.exception, StoreError)
    assert "no split 'val'" in str(result.exception)


def test_a_store_that_there_is_not() -> None:
    result = CliRunner().invoke(command_line, ["bench", "loader", "nowhere"])
    assert isinstance(result.exception, StoreError)
