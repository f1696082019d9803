"""Shards are mapped as they are needed, and let go before a process has too many maps."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from packing.stores import template, write_shards

import tokpress
from tokpress.errors import StoreError
from tokpress.storage.lost_pages import num_maps
from tokpress.store import open_shards

SHARDS = 60
TOKENS = 5


@pytest.fixture
def few_maps(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many are allowed beside those that there are already."""
    gc.collect()
    monkeypatch.setattr(open_shards, "MOST_MAPS", num_maps() + 10)
    monkeypatch.setattr(open_shards, "_FEWEST_OPEN", 2)
    return num_maps() + 10


@pytest.fixture
def store(tmp_path: Path) -> tokpress.Store:
    return write_shards(template(tmp_path / "template"), [[2, 3]] * SHARDS)


def expected(first: int, tokens: int) -> list[int]:
    return [token % 251 for token in range(first, first + tokens)]


def test_a_file_is_mapped_when_it_is_looked_at(store: tokpress.Store) -> None:
    before = num_maps()
    shard = store.shard(0)
    assert num_maps() == before
    assert len(shard.ids) == TOKENS
    assert num_maps() == before + 1
    assert shard.ends.tolist() == [2, 5]
    assert num_maps() == before + 2


def test_of_many_only_the_last_stay_open(store: tokpress.Store, few_maps: int) -> None:
    for i in range(2 * SHARDS):
        assert store.doc(i).tolist() == expected(TOKENS * (i // 2) + 2 * (i % 2), 2 + i % 2)
        assert num_maps() <= few_maps + 2  # of the shard that is being opened
    assert len(store._shards) < SHARDS


def test_all_readers_of_a_process_share_the_bound(store: tokpress.Store, few_maps: int) -> None:
    others = [tokpress.open(store.path) for _ in range(8)]
    for i in range(SHARDS):
        for other in others:
            assert other.tokens(TOKENS * i, TOKENS * (i + 1)).tolist() == expected(TOKENS * i, TOKENS)
            assert num_maps() <= few_maps + 2


def test_what_was_let_go_can_be_read_by_whoever_holds_it(store: tokpress.Store, few_maps: int) -> None:
    held = [store.doc(2 * i) for i in range(SHARDS)]
    assert [doc.tolist() for doc in held] == [expected(TOKENS * i, 2) for i in range(SHARDS)]
    assert num_maps() > few_maps  # these cannot be let go
    del held
    store.doc(0)
    assert num_maps() <= few_maps + 2


def test_a_reader_that_is_gone_leaves_no_map(store: tokpress.Store) -> None:
    before = num_maps()
    other = tokpress.open(store.path)
    other.doc(0)
    assert num_maps() > before
    del other
    assert num_maps() == before


def test_many_short_lived_readers_leave_no_trace(store: tokpress.Store, few_maps: int) -> None:
    for _ in range(3 * few_maps):
        tokpress.open(store.path).doc(0)
    assert len(open_shards._in_order) <= few_maps + 1


@pytest.mark.parametrize("change", ["vanished", "shrunk"])
def test_one_that_changed_after_it_was_let_go_is_named(store: tokpress.Store, few_maps: int, change: str) -> None:
    data = tokpress.PretokenizedDataset(store, seq_len=TOKENS, output="numpy")
    assert data[0]["input_ids"].tolist() == expected(0, TOKENS)
    for i in range(1, SHARDS):
        data[i]
    path = store.path / "shards" / "train-00000-000.bin"
    if change == "vanished":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2])
    message = "is missing" if change == "vanished" else "has 8 bytes instead of 10"
    with pytest.raises(StoreError, match=rf"{path} {message}.*tokpress verify {store.path}"):
        data[0]


def test_a_mask_is_mapped_only_if_there_is_one(store: tokpress.Store) -> None:
    assert store.shard(0).mask is None
    assert np.array_equal(store.shard(0).positions, [0, 1])
