from __future__ import annotations

import mmap
import pickle
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import page_cache
import pytest

import tokpress

from .conftest import build, make_texts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems get no advice")

ROW = mmap.PAGESIZE // 2  # tokens of 16 bits that fill a page
CALLS, ROWS = 60, 32


@pytest.fixture
def cold(tmp_path: Path) -> tokpress.Store:
    """A store of which nothing is in memory."""
    texts = [text * 100 for text in make_texts(1400, 7)]
    store = build(tmp_path, texts, shard_size="1MB")
    assert store.num_tokens // ROW > CALLS * ROWS
    for path in (store.path / "shards").glob("*.bin"):
        page_cache.drop(path)
    return store


def shuffled(store: tokpress.Store, output: str) -> tokpress.PretokenizedDataset:
    data = tokpress.PretokenizedDataset(store, seq_len=ROW, fields=["input_ids"], dtype="uint16", output=output)  # type: ignore[arg-type]
    data.stream.expect(scattered=True)
    return data


def orders(data: tokpress.PretokenizedDataset) -> Iterator[np.ndarray]:
    """No row comes twice, so each call finds something to read in a cold store."""
    return iter(np.random.default_rng(0).permutation(len(data))[: CALLS * ROWS].reshape(CALLS, ROWS))


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_rows_on_a_disk_are_not_waited_for_page_by_page(cold: tokpress.Store, output: str) -> None:
    data = shuffled(cold, output)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    batches = [np.asarray(data.batch(order)["input_ids"]).copy() for order in orders(data)]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before < CALLS * ROWS / 10
    assert data.stream.ahead is not None
    assert data.stream.ahead.calls == CALLS
    everything = cold.tokens(0, len(data) * ROW).reshape(-1, ROW)
    assert all((batch == everything[order]).all() for batch, order in zip(batches, orders(data), strict=True))


def test_what_is_in_memory_is_soon_not_asked_for_any_more(cold: tokpress.Store) -> None:
    first = shuffled(cold, "numpy")
    for order in orders(first):
        first.batch(order)
    again = shuffled(cold, "numpy")
    for order in orders(again):
        again.batch(order)
    assert again.stream.ahead is not None
    assert 0 < again.stream.ahead.calls < CALLS / 2


def test_another_process_does_as_this_one(cold: tokpress.Store) -> None:
    assert pickle.loads(pickle.dumps(shuffled(cold, "numpy"))).stream.ahead is not None


def test_what_is_read_in_order_is_left_to_the_system(cold: tokpress.Store) -> None:
    data = shuffled(cold, "numpy")
    data.stream.expect(scattered=False)
    assert data.stream.ahead is None
    assert pickle.loads(pickle.dumps(data)).stream.ahead is None
    assert (data.batch([3])["input_ids"] == cold.tokens(3 * ROW, 4 * ROW)).all()


@pytest.mark.parametrize("scattered", [True, False])
def test_the_system_is_told_how_a_map_is_read(cold: tokpress.Store, scattered: bool) -> None:
    """By /proc: `rr` is what a map is marked with of which no more is read than asked for."""
    data = shuffled(cold, "numpy")
    data.stream.expect(scattered=scattered)
    data.batch([3])
    marks, current = [], ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        current = line if "-" in line.split(" ")[0] else current
        if line.startswith("VmFlags:") and str(cold.path) in current and current.endswith(".bin"):
            marks.append("rr" in line.split())
    assert marks
    assert set(marks) == {scattered}


def test_the_loader_knows_its_order(cold: tokpress.Store) -> None:
    for shuffle, scattered in ((True, True), (False, False), ("blocks", False)):
        data = shuffled(cold, "numpy")
        next(iter(tokpress.Loader(data, batch_size=2, shuffle=shuffle, threads=0)))
        assert (data.stream.ahead is not None) is scattered
