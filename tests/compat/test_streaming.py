"""MosaicML's StreamingDataset opens our shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import documents, masks_of

import tokpress

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("stood_in")]
LENGTHS = {"train": [[30, 0, 3, 7, 50], [12], [1, 300, 70_000]], "val": [[5, 5]]}


@pytest.fixture
def streaming(peer: Any) -> Any:
    module = peer("streaming")
    peer("streaming.base.util").clean_stale_shared_memory()
    return module


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_it_reads_our_documents(streaming: Any, make_store: Any, tmp_path: Path, dtype: str) -> None:
    store = make_store(LENGTHS, dtype=dtype, masks=True)
    tokpress.export(store, to="mds", out=tmp_path / "out")
    data = streaming.StreamingDataset(local=str(tmp_path / "out" / "train"), batch_size=1, shuffle=False)
    assert len(data) == store.num_docs
    assert [data[i]["tokens"].tolist() for i in range(len(data))] == documents(store)
    assert [data[i]["loss_mask"].tolist() for i in range(len(data))] == masks_of(store)
    assert data[0]["tokens"].dtype == dtype


@pytest.mark.parametrize("method", ["concat", "pad"])
def test_it_reads_our_sequences(streaming: Any, make_store: Any, tmp_path: Path, method: str) -> None:
    store = make_store(LENGTHS)
    tokpress.export(store, to="mds", out=tmp_path / "out", seq_len=32, method=method)
    ours = tokpress.PretokenizedDataset(
        store, seq_len=32, method=method, output="numpy", fields=("input_ids", "loss_mask")
    )
    batch = ours.batch(range(len(ours)))
    data = streaming.StreamingDataset(local=str(tmp_path / "out" / "train"), batch_size=1, shuffle=False)
    assert [data[i]["tokens"].tolist() for i in range(len(data))] == batch["input_ids"].tolist()
    if method == "pad":
        assert [data[i]["loss_mask"].tolist() for i in range(len(data))] == batch["loss_mask"].astype(int).tolist()
