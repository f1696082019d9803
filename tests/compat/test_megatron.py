"""Megatron's IndexedDataset opens our pairs; we adopt what its builder writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

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


class Tokenizer:
    """What Megatron asks of one where tokens are there already."""

    unique_identifiers: ClassVar = {"class": "tests.Tokenizer", "tokenizer_path": "bytes"}
    vocab_size, eod, eos, pad = 257, EOS, EOS, -1


@pytest.fixture
def one_rank(peer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A blend asks which rank it is on."""
    distributed = peer("torch.distributed")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(("samples", "seq_len"), [(None, 8), (40, 8), (150, 8), (61, 5)])
def test_it_finds_the_indices_that_it_would_have_made(
    peer: Any, make_store: Any, tmp_path: Path, samples: int | None, seq_len: int, merge: bool, mmap: bool
) -> None:
    """Byte by byte, name by name; then with our cache it makes none, and its samples are the same."""
    gpt, builder = (
        peer("megatron.core.datasets.gpt_dataset"),
        peer("megatron.core.datasets.blended_megatron_dataset_builder"),
    )
    store = make_store({"train": [[3, 0, 7, 50], [2, 90], [1, 1, 200]], "val": [[5, 25]]})
    (tmp_path / "run.json").write_text(json.dumps({"random_seed": 77, "tokenizer": Tokenizer.unique_identifiers}))
    wanted = {} if samples is None else {"train": samples}
    tokpress.export(
        store,
        to="megatron",
        out=tmp_path / "out",
        merge=merge,
        indices_for=[seq_len],
        index_samples=wanted,
        index_run=tmp_path / "run.json",
    )

    def blend(split: str) -> tuple[list[str], list[float] | None]:
        words = (tmp_path / "out" / f"{split}.txt").read_text().split()
        weights = None if split == "val" or samples is None else [float(word) for word in words[::2]]
        return words[1::2], weights

    def made(cache: Path) -> Any:
        config = gpt.GPTDatasetConfig(
            random_seed=77,
            sequence_length=seq_len,
            blend_per_split=[blend("train"), blend("val"), None],
            path_to_cache=str(cache),
            mmap_bin_files=mmap,
            tokenizer=Tokenizer(),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        sizes = [samples, None, 0]
        return builder.BlendedMegatronDatasetBuilder(gpt.GPTDataset, sizes, lambda: True, config).build()

    def files(cache: Path) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in cache.iterdir() if "-GPTDataset-" in file.name}

    ours = files(tmp_path / "out" / "cache")
    theirs = made(tmp_path / "theirs")
    assert ours == files(tmp_path / "theirs")
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "cache").iterdir()}
    found = made(tmp_path / "out" / "cache")
    assert {file: file.stat().st_mtime_ns for file in times} == times
    for split in (0, 1):
        assert len(found[split]) == len(theirs[split])
        for i in range(len(found[split])):
            assert found[split][i]["tokens"].tolist() == theirs[split][i]["tokens"].tolist()
