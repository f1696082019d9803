"""`tokpress demo`: the whole way, on text that is always there."""

from __future__ import annotations

from pathlib import Path

import tokpress

from .conftest import Cli


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
