"""litgpt's LitData module reads our litdata export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import documents, flat

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_it_has_every_token_of_a_block_once(
    peer: Any, make_store: Any, tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are one longer than the context, as it asks for them."""
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "cache"))
    store = make_store({"train": [[30, 0, 3, 7, 50], [12], [1, 300]], "val": [[40, 50]]}, dtype=dtype)
    tokpress.export(store, to="litdata", out=tmp_path / "out", seq_len=17)
    data = peer("litgpt.data").LitData(data_path=tmp_path / "out", split_names=("train", "val"), num_workers=0)
    data.connect(batch_size=1, max_seq_length=16)
    for split, loader in (("train", data.train_dataloader()), ("val", data.val_dataloader())):
        stream = flat(documents(store.split(split)))
        found = [batch[0].tolist() for batch in loader]
        assert sorted(found) == sorted(stream[at : at + 17] for at in range(0, len(stream) - 16, 17))
