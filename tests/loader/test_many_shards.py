"""A store of 100,000 shards and 10^13 tokens is read like any other: within the maps that a process may have."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from store.many_shards import TOKENS, SparseStorage, make

import tokpress
from tokpress.store.reader import open_store

SHARDS = 100_000
MOST_MAPS = 10_000


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> SparseStorage:
    return make(tmp_path_factory.mktemp("sparse") / "store", SHARDS)


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_shuffled_batches_stay_within_the_maps_of_a_process(storage: SparseStorage) -> None:
    store = open_store(storage)
    assert store.num_tokens == SHARDS * TOKENS == 10**13
    fields = ("input_ids", "position_ids")  # the documents' ends are needed, too
    data = tokpress.PretokenizedDataset(store, seq_len=64, fields=fields, output="numpy")
    loader = tokpress.Loader(data, batch_size=256, seed=0, threads=0)
    most = 0
    for batch in islice(loader, 18):
        assert not batch["input_ids"].any()
        rises = np.diff(batch["position_ids"]) == 1
        assert (rises | (batch["position_ids"][:, 1:] == 0)).all()
        most = max(most, maps())
    assert 5_000 < most < MOST_MAPS  # it did fill up


def test_a_batch_of_rows_from_more_shards_than_that(storage: SparseStorage) -> None:
    data = tokpress.PretokenizedDataset(open_store(storage), seq_len=8, fields=("input_ids",), output="numpy")
    each = TOKENS // 8
    assert data.batch(np.arange(12_000) * each)["input_ids"].shape == (12_000, 8)
    assert maps() < MOST_MAPS
