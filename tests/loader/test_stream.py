"""Ranges of the token stream, over shards of every kind."""

from __future__ import annotations

from pathlib import Path

from packing.stores import template, write_shards

import tokpress

FIELDS = ["input_ids", "doc_ids", "position_ids"]


def test_a_sequence_reaches_over_a_shard_whose_documents_are_all_empty(tmp_path: Path) -> None:
    store = write_shards(template(tmp_path / "template"), [[8], [0, 0, 0], [8]])
    row = tokpress.PretokenizedDataset(store, seq_len=16, fields=FIELDS, output="numpy")[0]
    assert row["input_ids"].tolist() == list(range(16))
    assert row["doc_ids"].tolist() == [0] * 8 + [4] * 8
    assert row["position_ids"].tolist() == [*range(8), *range(8)]
