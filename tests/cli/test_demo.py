"""`tokpress demo`: the whole way, on text that is always there."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokpress
from tokpress.cli import demo

from .conftest import Cli


def test_the_rate_is_that_of_all_tokens_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a line of text\n" * 5000)
    store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store", format="lines")
    tokpress.pack(store.path, seq_len=demo._SEQ_LEN, method="bestfit")
    seconds = iter([10.0, 14.0])
    monkeypatch.setattr(demo, "perf_counter", lambda: next(seconds))
    rate, resumed = demo._train(store)
    data = tokpress.PretokenizedDataset(store, seq_len=demo._SEQ_LEN, method="bestfit")
    assert rate == len(data) // demo._BATCH_SIZE * demo._BATCH_SIZE * demo._SEQ_LEN / 4
    assert resumed


def test_runs_from_end_to_end_and_again(cli: Cli, tmp_path: Path) -> None:
    for _ in range(2):  # the second time over what the first one left
        result = cli("demo", "--out", tmp_path / "demo")
        assert result.code == 0, result.err
        assert result.out.startswith("demo: ")
        assert result.out.endswith("store verified: sound; read back: equal; resumed: equal\n")
        for step in ("train-tokenizer", "build", "verify", "inspect", "pack", "Loader"):
            assert step in result.err
    store = tokpress.open(tmp_path / "demo" / "tokens")
    assert store.num_docs > 100
    assert store.verify().ok
    assert store.manifest.parity.outcome == "equal"
