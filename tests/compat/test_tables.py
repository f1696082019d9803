"""Hugging Face datasets, polars and DuckDB open our tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import documents, masks_of

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTHS = {"train": [[30, 0, 3, 7, 50], [12], [1, 300]], "val": [[5, 5]]}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the environment: the library reads that once, and other tests have a Hub of their own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_datasets_loads_arrow_from_disk(peer: Any, make_store: Any, tmp_path: Path, dtype: str) -> None:
    datasets = peer("datasets")
    store = make_store(LENGTHS, dtype=dtype, masks=True)
    tokpress.export(store, to="arrow", out=tmp_path / "out")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert list(found) == ["train", "val"]
    for split in LENGTHS:
        assert list(found[split]["input_ids"]) == documents(store.split(split))
        assert list(found[split]["loss_mask"]) == masks_of(store.split(split))
    alone = datasets.load_from_disk(str(tmp_path / "out" / "val"))
    assert list(alone["input_ids"]) == documents(store.split("val"))
    assert alone.features["input_ids"].feature.dtype == dtype


def test_datasets_loads_arrow_sequences(peer: Any, make_store: Any, tmp_path: Path) -> None:
    datasets = peer("datasets")
    store = make_store(LENGTHS)
    tokpress.export(store, to="arrow", out=tmp_path / "out", seq_len=16)
    ours = tokpress.PretokenizedDataset(store, seq_len=16, output="numpy").batch(range(store.num_tokens // 16))
    found = datasets.load_from_disk(str(tmp_path / "out"))["train"]
    assert list(found["input_ids"]) == ours["input_ids"].tolist()


def test_datasets_loads_parquet(peer: Any, make_store: Any, tmp_path: Path) -> None:
    datasets = peer("datasets")
    store = make_store(LENGTHS)
    tokpress.export(store, to="parquet", out=tmp_path / "out")
    files = {split: str(tmp_path / "out" / split / "*.parquet") for split in LENGTHS}
    found = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    for split in LENGTHS:
        assert list(found[split]["input_ids"]) == documents(store.split(split))


def test_polars_reads_parquet(peer: Any, make_store: Any, tmp_path: Path) -> None:
    polars = peer("polars")
    store = make_store(LENGTHS, masks=True)
    tokpress.export(store, to="parquet", out=tmp_path / "out")
    found = polars.scan_parquet(str(tmp_path / "out" / "train" / "*.parquet")).collect()
    assert found["input_ids"].to_list() == documents(store)
    assert found["loss_mask"].to_list() == masks_of(store)


def test_duckdb_reads_parquet(peer: Any, make_store: Any, tmp_path: Path) -> None:
    duckdb = peer("duckdb")
    store = make_store(LENGTHS, dtype="uint32")
    tokpress.export(store, to="parquet", out=tmp_path / "out", seq_len=16)
    ours = tokpress.PretokenizedDataset(store, seq_len=16, output="numpy").batch(range(store.num_tokens // 16))
    query = f"select input_ids from read_parquet('{tmp_path}/out/train/*.parquet') order by file_row_number"
    rows = duckdb.sql(query.replace("')", "', file_row_number = true)")).fetchall()
    assert [list(ids) for (ids,) in rows] == ours["input_ids"].tolist()
