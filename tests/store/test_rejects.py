"""Rejected records are read one after the other, in the order of the inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tokpress
from tokpress.errors import StoreError
from tokpress.storage.base import Storage
from tokpress.store.rejects import RejectView

LINES = [line for i in range(12) for line in (json.dumps({"text": f"good {i}"}), f"bad {i}", '{"text": 5}')]


@pytest.fixture
def store(tmp_path: Path) -> tokpress.Store:
    (tmp_path / "a.jsonl").write_text("".join(line + "\n" for line in LINES))
    out = tmp_path / "store"
    return tokpress.build(
        tmp_path / "a.jsonl", tokenizer="bytes", out=out, unit_size=150, shard_size=20, max_rejects="100%"
    )


class TestAll:
    def test_are_listed_with_all_that_is_known_of_them(self, store: tokpress.Store) -> None:
        assert len(list((store.path / "rejects").iterdir())) > 3
        found = list(store.rejects())
        assert [view.number for view in found] == list(range(24))
        assert [view.line for view in found] == [i + 1 for i in range(len(LINES)) if i % 3]
        assert [view.reason for view in found] == ["bad-json", "wrong-type"] * 12
        assert [view.preview for view in found[:2]] == ["bad 0", '{"text": 5}']
        data = (store.path.parent / "a.jsonl").read_bytes()
        for view in found:
            assert Path(view.source).name == "a.jsonl"
            assert data[view.position :].startswith(view.preview.encode())
            assert (store.path / "rejects" / f"{view.unit:05d}-{view.shard:03d}.jsonl").exists()

    def test_are_json_and_back(self, store: tokpress.Store) -> None:
        view = next(store.rejects())
        assert msgspec.json.decode(msgspec.json.encode(view), type=RejectView) == view

    def test_of_a_store_without_any_there_are_none(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        assert list(store.rejects()) == []


class TestPages:
    @pytest.mark.parametrize("limit", [1, 5, 100])
    def test_are_the_whole_one_after_the_other(self, store: tokpress.Store, limit: int) -> None:
        pages = [list(store.rejects(offset=offset, limit=limit)) for offset in range(0, 24, limit)]
        assert [view for page in pages for view in page] == list(store.rejects())
        assert all(len(page) == limit for page in pages[:-1])

    def test_of_one_reason_count_those_alone(self, store: tokpress.Store) -> None:
        found = list(store.rejects(reason="wrong-type", offset=2, limit=3))
        assert [view.number for view in found] == [5, 7, 9]

    def test_behind_the_end_are_empty(self, store: tokpress.Store) -> None:
        assert list(store.rejects(offset=24)) == []

    @pytest.mark.parametrize("wrong", [{"offset": -1}, {"limit": -1}])
    def test_below_zero_are_an_error_at_once(self, store: tokpress.Store, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="below 0"):
            store.rejects(**wrong)


class TestReading:
    def test_a_file_is_opened_when_it_is_come_to(self, store: tokpress.Store, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[str] = []
        open_key = type(store.storage).open

        def note(storage: Storage, key: str) -> Any:
            opened.append(key)
            return open_key(storage, key)

        monkeypatch.setattr(type(store.storage), "open", note)
        reading = store.rejects()
        assert opened == []
        next(reading)
        assert len(opened) == 1

    @pytest.mark.parametrize("damage", ["missing", "no json"])
    def test_a_damaged_file_is_named(self, store: tokpress.Store, damage: str) -> None:
        path = sorted((store.path / "rejects").iterdir())[1]
        if damage == "missing":
            path.unlink()
        else:
            path.write_text("no json\n")
        with pytest.raises(StoreError, match=rf"{path.name} cannot be read: .*tokpress verify"):
            list(store.rejects())
