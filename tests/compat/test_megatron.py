"""Megatron's IndexedDataset opens our pairs; we adopt what its builder writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.stores import EOS, documents

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTHS = {"train": [[3, 0, 7, 50], [2], [], [1, 1, 300]], "val": [[5, 5]]}


@pytest.fixture
def indexed(peer: Any) -> Any:
    return peer("megatron.core.datasets.indexed_dataset")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("merge", [False, True])
def test_it_reads_our_documents(indexed: Any, make_store: Any, tmp_path: Path, dtype: str, merge: bool) -> None:
    store = make_store(LENGTHS, dtype=dtype)
    tokpress.export(store, to="megatron", out=tmp_path / "out", merge=merge)
    for split in LENGTHS:
        prefixes = (tmp_path / "out" / f"{split}.txt").read_text().split()[1::2]
        found = []
        for prefix in prefixes:
            data = indexed.IndexedDataset(prefix)
            assert data.document_indices.tolist() == list(range(len(data) + 1))
            assert data.index.dtype == (np.uint16 if dtype == "uint16" else np.int32)
            found += [data[i].tolist() for i in range(len(data))]
        assert found == documents(store.split(split))
        assert merge <= (len(prefixes) == 1)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
@pytest.mark.parametrize("sentences", [False, True])
def test_what_its_builder_writes_is_adopted(
    indexed: Any, peer: Any, tmp_path: Path, dtype: Any, sentences: bool
) -> None:
    """Also documents of several sequences, as it writes them with --split-sentences."""
    torch = peer("torch")
    docs = [[5, 6, 7, EOS], [EOS], [1] * 200 + [EOS], [9, EOS]]
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "corpus.bin"), dtype=dtype)
    for doc in docs:
        lengths = [1, len(doc) - 1] if sentences else [len(doc)]
        builder.add_document(torch.tensor(doc), lengths)
    builder.finalize(str(tmp_path / "corpus.idx"))
    store = tokpress.import_tokens(tmp_path / "corpus", format="megatron", tokenizer="bytes", out=tmp_path / "store")
    assert documents(store) == docs
    assert store.manifest.eos_id == EOS
    assert (tmp_path / "corpus.bin").stat().st_nlink == 2
    assert store.verify().ok
