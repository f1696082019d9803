"""Splits: the same record on the same side, whatever is added and whoever works on it; none on two sides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import stored

import tokpress
from documents.shaping import INPUT, batch_of
from tokpress.config import SplitConfig
from tokpress.documents import splits
from tokpress.documents.splits import Hasher, Splitter
from tokpress.errors import InputError, StoreError, UsageError
from tokpress.options import build_config
from tokpress.records import Input
from tokpress.run import coordinator

FROZEN = [
    10787275106886541210,
    2448558712210362235,
    11932322294427884444,
    17620424267045232264,
]  # worked out by hand, in Python's own integers


def write(path: Path, first: int, count: int, **fields: Any) -> Path:
    lines = [{"text": f"document {i}", "id": i, "user": f"u{i % 50}"} | fields for i in range(first, first + count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def build(inputs: list[Path], out: Path, **options: Any) -> tokpress.Store:
    defaults: Any = {"tokenizer": "bytes", "unit_size": 9000, "shard_size": 1500, "keep": ["id"]}
    store = tokpress.build(inputs, out=out, **(defaults | options))
    assert store.verify().problems == []
    return store


def ids(store: tokpress.Store, split: str) -> set[int]:
    part = store.split(split)
    found = [int(str(part.kept(i)["id"])) for i in range(len(part))]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"{name}.jsonl", 1000 * i, 400) for i, name in enumerate("abc")]


class TestStable:
    @pytest.mark.parametrize("options", [{"val_fraction": 0.2}, {"val_fraction": 0.2, "split_key": "user"}])
    def test_adding_files_before_and_after_moves_no_document(
        self, inputs: list[Path], tmp_path: Path, options: dict[str, Any]
    ) -> None:
        one = build(inputs[1:2], tmp_path / "one", **options)
        all_three = build(inputs, tmp_path / "three", **options)
        for split in ("train", "val"):
            assert ids(one, split) == {i for i in ids(all_three, split) if 1000 <= i < 2000}
            assert ids(one, split)
        assert ids(all_three, "train") | ids(all_three, "val") == {1000 * f + i for f in range(3) for i in range(400)}
        assert not ids(all_three, "train") & ids(all_three, "val")

    def test_workers_and_batches_change_nothing(self, inputs: list[Path], tmp_path: Path) -> None:
        options: Any = {"val_fraction": 0.3}
        one = build(inputs, tmp_path / "one", workers=1, batch_bytes=300, **options)
        two = build(inputs, tmp_path / "two", workers=2, **options)
        assert stored(one.path) == stored(two.path)

    def test_a_copy_elsewhere_has_the_same_validation_set(
        self, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data, copy = tmp_path / "data" / "en", tmp_path / "other" / "place"
        shutil.copytree(tmp_path, data, ignore=shutil.ignore_patterns("data"))
        shutil.copytree(data.parent, copy)
        monkeypatch.chdir(copy)
        arguments = [str(data.parent), str(copy), ".", "*/*.jsonl", f"{tmp_path}/data/**/*.jsonl"]
        stores = [build([Path(a)], tmp_path / f"store{i}", val_fraction=0.2) for i, a in enumerate(arguments)]
        chosen = [ids(store, "val") for store in stores]
        assert chosen[0]
        assert all(val == chosen[0] for val in chosen)

    def test_a_store_that_was_planned_by_paths_goes_on_by_paths(self, inputs: list[Path], tmp_path: Path) -> None:
        """Plans had no names once. The same command finds such a store finished, and ends an unfinished one as begun."""
        fresh = build(inputs, tmp_path / "fresh", val_fraction=0.2)
        assert [source.name for source in fresh.plan.inputs] == ["a.jsonl", "b.jsonl", "c.jsonl"]
        old = tmp_path / "old"
        options: Any = {"val_fraction": 0.2, "tokenizer": "bytes", "unit_size": 9000, "shard_size": 1500}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator, "by_name", lambda _config: False)
            before = tokpress.build(inputs, out=old, keep=["id"], **options)
        assert b'"name"' not in (old / "plan.json").read_bytes()
        assert ids(before, "val") != ids(fresh, "val")
        files = stored(old)
        assert ids(tokpress.build(inputs, out=old, keep=["id"], **options), "val") == ids(before, "val")
        (old / "manifest.json").unlink()
        for receipt in sorted((old / "shards").glob("*.json"))[3:]:
            receipt.unlink()
        again = tokpress.build(inputs, out=old, keep=["id"], **options)
        assert again.verify().ok
        assert stored(old) == files

    def test_another_seed_is_another_choice(self, inputs: list[Path], tmp_path: Path) -> None:
        chosen = [ids(build(inputs, tmp_path / str(s), val_fraction=0.2, split_seed=s), "val") for s in (0, 1)]
        assert chosen[0] != chosen[1]

    def test_records_with_one_key_stay_together(self, inputs: list[Path], tmp_path: Path) -> None:
        store = build(inputs, tmp_path / "store", val_fraction=0.3, split_key="user")
        users = [{i % 50 for i in ids(store, split)} for split in ("train", "val")]
        assert not users[0] & users[1]
        assert all(users)

    def test_the_text_itself_may_be_the_key(self, tmp_path: Path) -> None:
        twice = [write(tmp_path / f"{name}.jsonl", 0, 200) for name in "ab"]
        store = build(twice, tmp_path / "store", val_fraction=0.3, split_key="text", keep=[])
        texts = [{part.text(i) for i in range(len(part))} for part in (store, store.split("val"))]
        assert not texts[0] & texts[1]

    def test_the_hash_is_frozen(self) -> None:
        """Another one would move the documents of stores that are built again."""
        from tokpress.batches import TextBatch, large_strings

        source = Input(path="data/a.jsonl", format="jsonl", size=1, mtime_ns=1)
        batch = TextBatch(
            text=large_strings(["a", "b"]),
            positions=np.array([0, 17]),
            sources=np.zeros(2, np.int32),
            input=0,
            next_position=20,
        )
        by_place, _ = Hasher(SplitConfig(val_fraction=0.5), [source]).hashes(batch)
        by_key, _ = Hasher(SplitConfig(val_fraction=0.5, split_key="text", split_seed=3), [source]).hashes(batch)
        assert [int(value) for value in by_place] == FROZEN[:2]
        assert [int(value) for value in by_key] == FROZEN[2:]


class TestShares:
    def test_a_fraction_is_about_that(self, inputs: list[Path], tmp_path: Path) -> None:
        store = build(inputs, tmp_path / "store", val_fraction=0.25)
        assert 240 < len(store.split("val")) < 360

    @pytest.mark.parametrize(("fraction", "val"), [(0.0, 0), (1.0, 1200)])
    def test_none_and_all(self, inputs: list[Path], tmp_path: Path, fraction: float, val: int) -> None:
        store = build(inputs, tmp_path / "store", val_fraction=fraction)
        assert (len(store), len(store.split("val"))) == (1200 - val, val)

    @pytest.mark.parametrize("count", [0, 1, 37, 1200, 5000])
    def test_a_number_is_exactly_that(self, inputs: list[Path], tmp_path: Path, count: int) -> None:
        store = build(inputs, tmp_path / "store", val_docs=count)
        assert len(store.split("val")) == min(count, 1200)

    @pytest.mark.parametrize("count", [0, 1, 20])
    def test_also_where_not_all_hashes_are_held_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        """Of very many records only the smallest hashes are kept on the way; here many are a few hundred."""
        monkeypatch.setattr(splits, "_BATCH_BYTES", 100)
        source = write(tmp_path / "many.jsonl", 0, 2000)
        store = build([source], tmp_path / "store", val_docs=count, keep=[], unit_size="1MB", shard_size="1MB")
        assert (len(store), len(store.split("val"))) == (2000 - count, count)

    def test_a_number_never_makes_a_training_document_a_validation_one(
        self, inputs: list[Path], tmp_path: Path
    ) -> None:
        before = build(inputs[:2], tmp_path / "two", val_docs=50)
        after = build(inputs, tmp_path / "three", val_docs=50)
        assert ids(before, "train") <= ids(after, "train")

    def test_a_number_within_a_limit(self, inputs: list[Path], tmp_path: Path) -> None:
        store = build(inputs, tmp_path / "store", val_docs=20, limit=100)
        assert (len(store), len(store.split("val"))) == (80, 20)

    def test_going_on_does_not_count_again(self, inputs: list[Path], tmp_path: Path) -> None:
        store = build(inputs, tmp_path / "store", val_docs=37)
        expected = stored(store.path)
        (store.path / "manifest.json").unlink()
        (store.path / "shards" / f"{store.shard_of(0)}.json").unlink()
        assert stored(build(inputs, tmp_path / "store", val_docs=37).path) == expected


class TestField:
    def test_names_the_split(self, tmp_path: Path) -> None:
        names = ["train", "val", "test", "train"]
        source = tmp_path / "a.jsonl"
        lines = [{"text": str(i), "id": i, "part": names[i % 4]} for i in range(400)]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        store = build([source], tmp_path / "store", split_field="part")
        assert list(store.manifest.splits) == ["train", "test", "val"]
        assert {name: len(store.split(name)) for name in store.manifest.splits} == {
            "train": 200,
            "test": 100,
            "val": 100,
        }
        assert ids(store, "test") == {i for i in range(400) if i % 4 == 2}

    def test_without_a_name_a_record_is_rejected(self, tmp_path: Path) -> None:
        source = tmp_path / "a.jsonl"
        values = ["train", None, "../etc", "", "a-b", 5, "val"]
        source.write_text("".join(json.dumps({"text": "x", "id": i, "part": v}) + "\n" for i, v in enumerate(values)))
        store = build([source], tmp_path / "store", split_field="part")
        assert store.manifest.rejects == {"bad-split": 3, "missing-field": 1}
        assert list(store.manifest.splits) == ["train", "5", "val"]

    def test_too_many_names_are_an_error(self, inputs: list[Path], tmp_path: Path) -> None:
        with pytest.raises(InputError, match="more than 16 values"):
            build(inputs, tmp_path / "store", split_field="id")

    def test_too_many_names_are_an_error_as_soon_as_they_are_met(self) -> None:
        """Not at the end of the run only, when all has been encoded."""
        read = batch_of(build_config("bytes", {"split_field": "id"}), [{"text": "x", "id": f"n{i}"} for i in range(20)])
        splitter = Splitter(SplitConfig(split_field="id"), [INPUT], None)
        assert len(splitter.mark(read.part(0, 15))) == 15
        with pytest.raises(InputError, match="more than 16 values: n0, n1"):
            splitter.mark(read.part(15))

    def test_a_store_of_other_splits_only_still_has_train(self, tmp_path: Path) -> None:
        store = build([write(tmp_path / "a.jsonl", 0, 30, part="dev")], tmp_path / "store", split_field="part")
        assert (len(store), len(store.split("dev"))) == (0, 30)


class TestInputs:
    def test_of_their_own(self, inputs: list[Path], tmp_path: Path) -> None:
        store = build(inputs[:2], tmp_path / "store", val_inputs=[inputs[2]])
        assert ids(store, "val") == set(range(2000, 2400))
        assert ids(store, "train") == {*range(400), *range(1000, 1400)}
        assert store.split("val").where(3)[0] == str(inputs[2])

    def test_a_file_cannot_be_both(self, inputs: list[Path], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="in one split only"):
            build(inputs, tmp_path / "store", val_inputs=[inputs[2]])

    def test_other_ones_are_another_store(self, inputs: list[Path], tmp_path: Path) -> None:
        build(inputs[:2], tmp_path / "store", val_inputs=[inputs[2]])
        with pytest.raises(UsageError, match="something else"):
            build(inputs, tmp_path / "store")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_fraction": 0.1, "val_docs": 3}, "two ways to split"),
        ({"val_fraction": 0.1, "split_field": "x"}, "two ways to split"),
        ({"split_key": "id"}, "--val-fraction 0.01"),
        ({"val_fraction": 1.5}, "between 0 and 1"),
        ({"val_docs": -1}, "at least 0"),
    ],
)
def test_options_that_make_no_sense(inputs: list[Path], tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(inputs, tmp_path / "store", **options)


def test_a_missing_key_is_a_reject(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a", "id": 1}\n{"text": "b"}\n')
    store = build([source], tmp_path / "store", val_fraction=0.5, split_key="id")
    assert store.manifest.rejects == {"missing-field": 1}


def test_a_split_that_is_not_there_says_which_are(inputs: list[Path], tmp_path: Path) -> None:
    store = build(inputs, tmp_path / "store", val_fraction=0.1)
    with pytest.raises(StoreError, match="train, val"):
        store.split("test")
    data = tokpress.PretokenizedDataset(store.path, seq_len=16, split="val", output="numpy")
    assert len(data) == store.split("val").num_tokens // 16
