"""LitData's StreamingDataset with its TokensLoader opens our chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import documents, flat

import tokpress
from tokpress.formats import litdata as ours

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("stood_in")]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_it_reads_our_tokens_in_blocks(
    peer: Any, make_store: Any, tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    litdata = peer("litdata")
    loader = peer("litdata.streaming.item_loader").TokensLoader
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setattr(ours, "FILE_BYTES", 200)  # several chunks
    store = make_store({"train": [[30, 0, 3, 7, 50], [12], [1, 300]]}, dtype=dtype)
    tokpress.export(store, to="litdata", out=tmp_path / "out", seq_len=16)
    assert len(list((tmp_path / "out" / "train").glob("chunk-*.bin"))) > 2
    data = litdata.StreamingDataset(str(tmp_path / "out" / "train"), item_loader=loader(block_size=16))
    stream = flat(documents(store))
    assert len(data) == len(stream) // 16
    assert [data[i].tolist() for i in range(len(data))] == [
        stream[at : at + 16] for at in range(0, len(stream) - 15, 16)
    ]
    assert [block.tolist() for block in data] == [data[i].tolist() for i in range(len(data))]
