"""A receipt counts while the files that it speaks for are there, as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import stored

import tokpress
from tokpress.records import MANIFEST, REJECTS, SHARDS
from tokpress.run import events
from tokpress.run.events import Event
from tokpress.storage.local import LocalStorage
from tokpress.store import recheck
from tokpress.store.receipts import read_receipts, unit_receipts
from tokpress.store.recheck import fitting


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lines = [f'{{"text": "document {number}"}}' if number % 20 else "bad" for number in range(300)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return tmp_path / "texts.jsonl"


@pytest.fixture
def build(source: Path, tmp_path: Path) -> Callable[..., tokpress.Store]:
    """Two splits, several units and many shards, with rejects."""

    def run(**options: object) -> tokpress.Store:
        defaults = {"unit_size": 3000, "shard_size": 600, "max_rejects": "100%", "val_fraction": 0.3}
        return tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", **(defaults | options))  # type: ignore[arg-type]

    return run


@pytest.fixture
def stopped(build: Callable[..., tokpress.Store]) -> tuple[Path, dict[str, bytes]]:
    """A store whose run was stopped just before the end, and what it is to become."""
    store = build().path
    whole = stored(store)
    (store / MANIFEST).unlink()
    return store, whole


def removed(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


EXTENSIONS = ["bin", "ends", "pos"]


class TestBuild:
    @pytest.mark.parametrize("damage", [removed, cut, zeroed, flipped])
    @pytest.mark.parametrize("extension", EXTENSIONS)
    @pytest.mark.parametrize("split", ["train", "val"])
    def test_what_does_not_fit_is_written_again(
        self,
        stopped: tuple[Path, dict[str, bytes]],
        build: Callable[..., tokpress.Store],
        damage: Callable[[Path], None],
        extension: str,
        split: str,
    ) -> None:
        store, whole = stopped
        damage(sorted((store / SHARDS).glob(f"{split}-*.{extension}"))[2])
        heard: list[Event] = []
        assert build(workers=1, reporter=heard.append).verify().ok
        assert stored(store) == whole
        [lost] = [event for event in heard if isinstance(event, events.ShardsLost)]
        assert len(lost.shards) == 1

    @pytest.mark.parametrize("damage", [removed, cut])
    def test_rejects_are_looked_at_too(
        self,
        stopped: tuple[Path, dict[str, bytes]],
        build: Callable[..., tokpress.Store],
        damage: Callable[[Path], None],
    ) -> None:
        store, whole = stopped
        damage(sorted((store / REJECTS).iterdir())[0])
        assert build(workers=1).verify().ok
        assert stored(store) == whole

    @pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"unit": -1}', b"null"])
    def test_a_damaged_receipt_is_as_good_as_none(
        self, stopped: tuple[Path, dict[str, bytes]], build: Callable[..., tokpress.Store], data: bytes
    ) -> None:
        store, whole = stopped
        for receipt in sorted((store / SHARDS).glob("*.json"))[::5]:
            receipt.write_bytes(data)
        assert build(workers=1).verify().ok
        assert stored(store) == whole

    def test_one_under_another_s_name_is_none_either(
        self, stopped: tuple[Path, dict[str, bytes]], build: Callable[..., tokpress.Store]
    ) -> None:
        store, whole = stopped
        first, second = sorted((store / SHARDS).glob("train-*.json"))[:2]
        second.write_bytes(first.read_bytes())
        assert build(workers=1).verify().ok
        assert stored(store) == whole

    def test_where_all_fits_nothing_is_written_again(
        self, stopped: tuple[Path, dict[str, bytes]], build: Callable[..., tokpress.Store]
    ) -> None:
        heard: list[Event] = []
        build(workers=1, reporter=heard.append)
        assert not [event for event in heard if isinstance(event, events.Advanced | events.ShardsLost)]

    def test_without_checksums_sizes_are_compared_still(
        self, stopped: tuple[Path, dict[str, bytes]], build: Callable[..., tokpress.Store]
    ) -> None:
        store, whole = stopped
        shards = sorted((store / SHARDS).glob("train-*.bin"))
        cut(shards[0])
        zeroed(shards[-1])  # of another unit, which is not written again
        assert not build(workers=1, check_receipts="none").verify().ok  # as asked: sizes do not tell
        assert stored(store)[f"{SHARDS}/{shards[0].name}"] == whole[f"{SHARDS}/{shards[0].name}"]


class TestSample:
    def test_is_all_where_that_is_cheap(self, stopped: tuple[Path, dict[str, bytes]]) -> None:
        storage = LocalStorage(stopped[0])
        for path in (stopped[0] / SHARDS).glob("*.pos"):
            zeroed(path)
        assert fitting(storage, read_receipts(storage), "sampled")[0] == {}

    def test_is_within_a_bound_where_it_is_not(
        self, stopped: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked_at: list[str] = []
        storage = LocalStorage(stopped[0])
        checksum = LocalStorage.checksum

        def look(storage: LocalStorage, key: str) -> str:
            looked_at.append(key)
            return checksum(storage, key)

        monkeypatch.setattr(LocalStorage, "checksum", look)
        receipts = read_receipts(storage)
        shards = [receipt for unit in receipts.values() for receipt in unit]
        total = sum(entry.bytes for receipt in shards for entry in receipt.files.values())
        monkeypatch.setattr(recheck, "CHEAP_BYTES", total // 4)
        assert fitting(storage, receipts, "sampled")[0] == receipts
        seen = sum(storage.size(key) for key in looked_at)
        assert 0 < seen <= total // 4
        looked_at.clear()
        fitting(storage, receipts, "all")
        assert sum(storage.size(key) for key in looked_at) == total

    def test_what_does_not_fit_is_vouched_for_no_more(self, stopped: tuple[Path, dict[str, bytes]]) -> None:
        """Whatever becomes of the run that found out."""
        storage = LocalStorage(stopped[0])
        cut(stopped[0] / SHARDS / "val-00000-001.bin")
        kept, lost = fitting(storage, read_receipts(storage), "sampled")
        assert lost == ["val-00000-001"]
        assert kept == read_receipts(storage)
        assert unit_receipts(storage, 0) == kept[0]
        assert {receipt.number for receipt in kept[0]} == {0}


def test_an_import_looks_too(tmp_path: Path, stopped: tuple[Path, dict[str, bytes]]) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "train.bin").write_bytes(b"a\0b\0\0\1" * 50)
    options = {"format": "nanogpt", "tokenizer": "bytes", "out": tmp_path / "adopted", "copy": True}
    store = tokpress.import_tokens(given / "train.bin", **options)  # type: ignore[arg-type]
    (store.path / MANIFEST).unlink()
    zeroed(next((store.path / SHARDS).glob("*.ends")))
    assert tokpress.import_tokens(given / "train.bin", **options).verify().ok  # type: ignore[arg-type]
