"""Receipts of a unit repeat each other, so that to go on takes one read a unit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from run.jobs import receipt, write_texts

import tokpress
from store.tampering import file_entry, reseal
from tokpress.records import MANIFEST, SHARDS, Receipt
from tokpress.storage.local import LocalStorage
from tokpress.storage.memory import MemoryStorage
from tokpress.store.manifest import encode
from tokpress.store.receipts import REPEATED, StoredReceipt, as_stored, read_receipts, unit_receipts


class Counting(MemoryStorage):
    """Counts what is read."""

    reads = 0

    def read(self, key: str) -> bytes:
        self.reads += 1
        return super().read(key)


def unit_of(unit: int, numbers: int, *, splits: Sequence[str] = (), finished: bool = True) -> list[Receipt]:
    """All receipts of a unit, in order."""
    found: list[Receipt] = []
    for number in range(numbers):
        end = finished and number == numbers - 1
        train = receipt(unit, number, then=None if end else (0, number + 1))
        found += [msgspec.structs.replace(train, split=split) for split in splits]
        found.append(msgspec.structs.replace(train, beside=tuple(splits)))
    return found


def write(storage: MemoryStorage, known: list[Receipt]) -> None:
    for place, each in enumerate(known):
        storage.put(each.path("json"), encode(as_stored(each, known[:place])))


def test_a_hundred_thousand_receipts_take_one_read_a_unit() -> None:
    storage = Counting()
    units = 10_000
    for unit in range(units):
        write(storage, unit_of(unit, 5, splits=["val"], finished=unit % 2 == 0))
    assert len(storage.list(SHARDS)) == 100_000
    found = read_receipts(storage)
    assert storage.reads == units
    assert sum(map(len, found.values())) == 100_000
    assert found[7] == unit_of(7, 5, splits=["val"], finished=False)


def test_the_receipts_of_one_unit_take_two_reads_or_one() -> None:
    storage = Counting()
    write(storage, unit_of(3, 9, splits=["test", "val"]))
    write(storage, unit_of(4, 1, splits=["val"]))
    assert unit_receipts(storage, 3) == unit_of(3, 9, splits=["test", "val"])
    assert storage.reads == 2
    assert read_receipts(storage, [4]) == {4: unit_of(4, 1, splits=["val"])}
    assert storage.reads == 3


def test_a_unit_of_many_shards_is_read_in_steps_and_does_not_grow_with_their_square() -> None:
    known = unit_of(0, 4 * REPEATED + 3, finished=False)
    storage = Counting()
    write(storage, known)
    assert read_receipts(storage) == {0: known}
    assert storage.reads == 5
    assert max(len(storage.read(each.path("json"))) for each in known) < 2 * REPEATED * len(encode(known[0]))
    last = unit_of(0, len(known))
    write(storage, last)
    storage.reads = 0
    assert read_receipts(storage) == {0: last}
    assert storage.reads == 1


@pytest.mark.parametrize("gone", ["train-00000-001", "val-00000-001"])
def test_one_that_was_removed_does_not_come_back_by_those_that_repeat_it(gone: str) -> None:
    storage = MemoryStorage()
    known = unit_of(0, 4, splits=["val"])
    write(storage, known)
    storage.delete(f"{SHARDS}/{gone}.json")
    assert read_receipts(storage) == {0: known[:2]}
    assert unit_receipts(storage, 0) == known[:2]


def test_where_the_last_cannot_be_read_the_one_before_counts() -> None:
    storage = MemoryStorage()
    known = unit_of(0, 4)
    write(storage, known)
    storage.put(known[-1].path("json"), b"{")
    assert read_receipts(storage) == {0: known[:3]}
    assert unit_receipts(storage, 0) == known[:3]


def test_those_of_another_unit_do_not_count() -> None:
    storage = MemoryStorage()
    storage.put(f"{SHARDS}/train-00001-000.json", encode(as_stored(receipt(1, 0), [])))
    lying = StoredReceipt(
        **msgspec.structs.asdict(receipt(0, 1)), earlier=(receipt(1, 0), receipt(0, 0, then=(0, 1), docs=7))
    )
    storage.put(lying.path("json"), encode(lying))
    assert read_receipts(storage) == {1: [receipt(1, 0)]}


def test_a_unit_of_one_shard_has_the_bytes_that_it_always_had() -> None:
    assert encode(as_stored(receipt(0, 0), [])) == encode(receipt(0, 0))


class TestStores:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        source = write_texts(tmp_path / "in.jsonl", 40)
        tokpress.build(source, out=tmp_path / "store", tokenizer="bytes", shard_size=200, val_fraction=0.3)
        return tmp_path / "store"

    def test_repeat_what_they_have(self, store: Path) -> None:
        shards = [shard for split in tokpress.open(store).manifest.splits.values() for shard in split.shards]
        found = read_receipts(LocalStorage(store))[0]
        assert len(found) > 4
        assert sorted(found, key=lambda each: each.name) == sorted(shards, key=lambda each: each.name)
        last = (store / found[-1].path("json")).read_bytes()
        assert msgspec.json.decode(last, type=StoredReceipt).earlier == tuple(found[:-1])

    def test_of_an_older_version_are_gone_on_from_and_sound(self, store: Path) -> None:
        """Their receipts repeat nothing."""
        whole = read_receipts(LocalStorage(store))
        for each in whole[0]:
            (store / each.path("json")).write_bytes(encode(each))
        (store / MANIFEST).unlink()
        assert read_receipts(LocalStorage(store)) == whole
        source = store.parent / "in.jsonl"
        again = tokpress.build(source, out=store, tokenizer="bytes", shard_size=200, val_fraction=0.3)
        assert again.verify().ok
        assert (store / whole[0][-1].path("json")).read_bytes() == encode(whole[0][-1])

    def test_that_say_of_another_what_it_does_not_say_are_found(self, store: Path) -> None:
        last = read_receipts(LocalStorage(store))[0][-1]
        path = store / last.path("json")
        stored = msgspec.json.decode(path.read_bytes(), type=StoredReceipt)
        first = msgspec.structs.replace(stored.earlier[0], docs=stored.earlier[0].docs + 1)
        path.write_bytes(encode(msgspec.structs.replace(stored, earlier=(first, *stored.earlier[1:]))))
        reseal(store, files=tokpress.open(store).manifest.files | {last.path("json"): file_entry(path)})
        assert [problem.file for problem in tokpress.open(store).verify().problems] == [last.path("json")]
