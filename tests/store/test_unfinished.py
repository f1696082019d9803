"""The directory a run writes to: refused if it is something else, continued if it is this, never in doubt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run import jobs
from run.jobs import receipt, write_texts

import tokpress
from tokpress.errors import UsageError
from tokpress.options import build_config
from tokpress.records import (
    MANIFEST,
    PLAN,
    REJECTS,
    SHARDS,
    STDIN,
    TOKENIZER,
    Plan,
    Receipt,
    Slice,
    TokenizerFiles,
)
from tokpress.run.coordinator import build_store
from tokpress.run.messages import Task
from tokpress.run.tasks import continued, remaining_tasks
from tokpress.storage.local import LocalStorage, LocalUpload
from tokpress.storage.lock import LOCK
from tokpress.store import manifest
from tokpress.store.manifest import encode
from tokpress.store.receipts import read_receipts, unit_receipts
from tokpress.store.unfinished import (
    begin,
    check_output,
    check_same_plan,
    complete,
    is_finished,
    remove_strays,
    stored_plan,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def begun(store: Path, tmp_path: Path) -> tuple[Path, Plan, TokenizerFiles]:
    """A store just begun, of four units."""
    job, plan = jobs.begin(store, [write_texts(tmp_path / "a.jsonl", 40)], unit_bytes=300)
    assert len(plan.units) == 4
    return store, plan, job.files


def write_receipts(store: Path, *receipts: Receipt) -> None:
    for entry in receipts:
        (store / entry.path("json")).write_bytes(encode(entry))


BEGUN = ".plan.json.0123456789abcdef.tmp"  # an upload that was not committed


class TestCheckOutput:
    @pytest.mark.parametrize("left", [[], [LOCK], [LOCK, BEGUN], [BEGUN]])
    def test_nothing_and_what_a_run_that_died_at_once_left_is_fine(self, store: Path, left: list[str]) -> None:
        check_output(LocalStorage(store))
        store.mkdir()
        for name in left:
            (store / name).write_bytes(b"")
        check_output(LocalStorage(store))

    def test_a_store_is_fine_finished_or_not(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        check_output(LocalStorage(begun[0]))

    def test_a_link_to_nowhere_is_refused(self, store: Path) -> None:
        store.symlink_to(store.with_name("nowhere"))
        with pytest.raises(UsageError, match="is a link to nowhere"):
            check_output(LocalStorage(store))

    def test_a_file_is_refused(self, store: Path) -> None:
        store.write_text("mine")
        with pytest.raises(UsageError, match="is a file"):
            check_output(LocalStorage(store))

    @pytest.mark.parametrize(
        "name",
        [
            "notes.txt",
            "shards/x.bin",
            PLAN,
            MANIFEST,
            "tokenizer/tokenizer.json",
            "run.json",
            "run/notes.txt",
            "run/0/notes",
        ],
    )
    def test_anything_else_is_refused(self, store: Path, name: str) -> None:
        (store / name).parent.mkdir(parents=True)
        (store / name).write_text("{}")
        with pytest.raises(UsageError, match="not empty and not a store"):
            check_output(LocalStorage(store))


class TestLinks:
    """What a link in a store leads to is not the store's."""

    @pytest.mark.parametrize("name", ["shards", "tokenizer", "rejects", "shards/x.bin", "rejects/x.jsonl", "notes"])
    def test_are_refused_by_name(self, begun: tuple[Path, Plan, TokenizerFiles], tmp_path: Path, name: str) -> None:
        store, _, _ = begun
        elsewhere = tmp_path / "elsewhere"
        if (store / name).exists():
            (store / name).rename(elsewhere)
        (store / name).symlink_to(elsewhere)
        with pytest.raises(UsageError, match=f"{store / name} is a link"):
            check_output(LocalStorage(store))


class TestBegin:
    def test_writes_the_plan_and_the_tokenizer(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, files = begun
        assert sorted(path.name for path in store.iterdir()) == sorted([PLAN, REJECTS, SHARDS, TOKENIZER])
        assert (store / PLAN).read_bytes() == encode(plan)
        assert stored_plan(LocalStorage(store)) == plan
        assert {path.name: path.read_bytes() for path in (store / TOKENIZER).iterdir()} == files.files
        assert not is_finished(LocalStorage(store))

    def test_removes_what_was_there(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, files = begun
        (store / SHARDS / "old.bin").write_bytes(b"old")
        (store / REJECTS / "old.jsonl").write_bytes(b"old")
        (store / TOKENIZER / "old.json").write_bytes(b"old")
        (store / MANIFEST).write_bytes(b"old")
        begin(LocalStorage(store), plan, files)
        assert list((store / SHARDS).iterdir()) == list((store / REJECTS).iterdir()) == []
        assert {path.name for path in (store / TOKENIZER).iterdir()} == set(files.files)
        assert not is_finished(LocalStorage(store))

    def test_leaves_what_is_not_the_store_s(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, files = begun
        (store / "NOTES.txt").write_text("mine")
        begin(LocalStorage(store), plan, files)
        assert (store / "NOTES.txt").read_text() == "mine"

    def test_stopped_anywhere_leaves_a_store_or_nothing(
        self, tmp_path: Path, begun: tuple[Path, Plan, TokenizerFiles], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before each change of the directory the run dies. Then it is known as a store, has no manifest beside wrong
        files, no receipt of a shard that is gone, no receipt under a plan that is not its own, and can be gone on with."""
        _, plan, files = begun
        source = write_texts(tmp_path / "b.jsonl", 10)
        old = tokpress.build(source, tokenizer="bytes", out=tmp_path / "old", shard_size=60)
        steps = 0
        while True:
            store = tmp_path / f"step-{steps}"
            shutil.copytree(old.path, store)
            with monkeypatch.context() as patch:
                survived = dies_after(patch, steps, partial(begin, LocalStorage(store), plan, files))
            check_output(LocalStorage(store))
            assert not is_finished(LocalStorage(store)) or steps == 0
            found = read_receipts(LocalStorage(store)) if (store / SHARDS).is_dir() else {}
            for entry in [entry for unit in found.values() for entry in unit]:
                assert stored_plan(LocalStorage(store)) == old.plan
                assert all((store / entry.path(extension)).exists() for extension in entry.files)
            begin(LocalStorage(store), plan, files)
            assert stored_plan(LocalStorage(store)) == plan
            if survived:
                break
            steps += 1
        assert steps > 10

    def test_completing_makes_what_is_missing_and_touches_nothing_else(
        self, begun: tuple[Path, Plan, TokenizerFiles]
    ) -> None:
        store, _, files = begun
        whole = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
        complete(LocalStorage(store), files)
        assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == whole
        (store / SHARDS / "train-00000-000.bin").write_bytes(b"kept")
        shutil.rmtree(store / REJECTS)
        for path in (store / TOKENIZER).iterdir():
            path.write_bytes(b"half")
        (store / TOKENIZER / "x.tmp").write_bytes(b"")
        complete(LocalStorage(store), files)
        assert (store / REJECTS).is_dir()
        assert (store / SHARDS / "train-00000-000.bin").read_bytes() == b"kept"
        assert {path.name: path.read_bytes() for path in (store / TOKENIZER).iterdir()} == files.files


class Died(BaseException):
    pass


def dies_after(patch: pytest.MonkeyPatch, changes: int, run: Callable[[], None]) -> bool:
    """Runs until that many changes of the directory were made; whether it came to its end."""
    left = changes

    def counted(change: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Died
            left -= 1
            return change(*arguments, **options)

        return wrapped

    for name in ("unlink", "mkdir", "rmdir", "link", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(LocalUpload, "abort", lambda self: None)  # the dead do not clean up
    try:
        run()
    except Died:
        return False
    return True


class TestSamePlan:
    def test_the_same_is_fine(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        check_same_plan(LocalStorage(begun[0]), begun[1])

    def test_no_plan_is_fine(self, tmp_path: Path, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        check_same_plan(LocalStorage(tmp_path / "nowhere"), begun[1])

    def test_each_difference_is_told(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, _ = begun
        other = msgspec.structs.replace(
            plan,
            units=plan.units[:1],
            options=plan.options | {"eos_id": 7, "new": True},
            inputs=[msgspec.structs.replace(plan.inputs[0], size=5)],
        )
        with pytest.raises(UsageError) as refused:
            check_same_plan(LocalStorage(store), other)
        told = str(refused.value).splitlines()
        assert told[0] == f"{store} holds an unfinished store of something else:"
        assert told[1:-1] == [
            f"  inputs[0].size: was {plan.inputs[0].size}, is 5",
            "  options.eos_id: was 256, is 7",
            "  options.new: was nothing, is True",
            "  units: was 4 of them, is 1 of them",
        ]
        assert told[-1] == "Choose another --out, or replace it with --overwrite."

    def test_not_all_of_very_many(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, _ = begun
        other = msgspec.structs.replace(plan, options=plan.options | {f"o{i}": i for i in range(30)})
        with pytest.raises(UsageError) as refused:
            check_same_plan(LocalStorage(store), other)
        assert str(refused.value).count("\n  options.") == 10
        assert "\n  and 20 more\n" in str(refused.value)

    def test_standard_input_is_another_each_time(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, files = begun
        piped = msgspec.structs.replace(plan, inputs=[msgspec.structs.replace(plan.inputs[0], path=STDIN)])
        begin(LocalStorage(store), piped, files)
        check_same_plan(LocalStorage(store), piped)  # nothing was written yet
        write_receipts(store, receipt(0, 0, then=(0, 9)))
        with pytest.raises(UsageError, match="an unfinished store of standard input, which cannot be read a second"):
            check_same_plan(LocalStorage(store), piped)
        (store / MANIFEST).write_text("")
        with pytest.raises(UsageError, match=r"a finished store of standard input.*--overwrite"):
            check_same_plan(LocalStorage(store), piped)

    def test_a_finished_store_is_called_one(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, plan, _ = begun
        (store / MANIFEST).write_text("")
        with pytest.raises(UsageError, match="holds a finished store"):
            check_same_plan(LocalStorage(store), msgspec.structs.replace(plan, units=[]))

    @given(
        st.recursive(
            st.none() | st.integers(0, 3) | st.text(max_size=2),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
        st.recursive(
            st.none() | st.integers(0, 3) | st.text(max_size=2),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
    )
    def test_equal_things_do_not_differ_and_others_do(self, old: Any, new: Any) -> None:
        assert list(manifest._differences(old, old)) == []
        if not _same_but_for_missing(old, new):
            assert list(manifest._differences(old, new)) != []


def _same_but_for_missing(old: Any, new: Any) -> bool:
    """A key that is missing says no more than one that is None."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_same_but_for_missing(old.get(key), new.get(key)) for key in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same_but_for_missing, old, new))
    return bool(old == new)


class TestReceipts:
    def test_are_found_by_unit_and_in_order(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, _, _ = begun
        entries = [receipt(unit, number, then=(0, number + 1)) for unit in (2, 0) for number in (2, 0, 1)]
        write_receipts(store, *entries)
        found = read_receipts(LocalStorage(store))
        assert {unit: [entry.number for entry in entries] for unit, entries in found.items()} == {
            0: [0, 1, 2],
            2: [0, 1, 2],
        }
        assert unit_receipts(LocalStorage(store), 2) == found[2]
        assert unit_receipts(LocalStorage(store), 1) == []

    def test_are_in_order_beyond_a_thousand_shards_and_a_hundred_thousand_units(
        self, begun: tuple[Path, Plan, TokenizerFiles]
    ) -> None:
        """A name's digits run out; the order of names is not that of numbers then."""
        store, _, _ = begun
        write_receipts(store, *(receipt(100_001, number, then=(0, number)) for number in range(1002)))
        for found in (read_receipts(LocalStorage(store))[100_001], unit_receipts(LocalStorage(store), 100_001)):
            assert [entry.number for entry in found] == list(range(1002))

    def test_of_several_splits_count_when_the_one_of_train_is_there(
        self, begun: tuple[Path, Plan, TokenizerFiles]
    ) -> None:
        """It is written last, and names the others."""
        store, _, _ = begun
        both = [receipt(0, number, then=(0, 5 + number)) for number in range(2)]
        train = [msgspec.structs.replace(entry, beside=("test", "val")) for entry in both]
        others = [msgspec.structs.replace(entry, split=split) for entry in both for split in ("test", "val")]
        write_receipts(store, *others)
        assert (read_receipts(LocalStorage(store)), unit_receipts(LocalStorage(store), 0)) == ({}, [])
        write_receipts(store, train[0])
        assert read_receipts(LocalStorage(store))[0] == unit_receipts(LocalStorage(store), 0) == [*others[:2], train[0]]
        assert continued(Task(unit=0, slices=[Slice(0)]), unit_receipts(LocalStorage(store), 0)) == Task(
            unit=0, slices=[Slice(0)], first_shard=1, earlier=[*others[:2], train[0]], start=(0, 5)
        )
        remove_strays(LocalStorage(store), read_receipts(LocalStorage(store)))
        assert {path.stem for path in (store / SHARDS).glob("*.json")} == {
            f"{split}-00000-000" for split in ("test", "train", "val")
        }

    def test_of_a_number_do_not_count_where_one_of_its_splits_is_missing(
        self, begun: tuple[Path, Plan, TokenizerFiles]
    ) -> None:
        """They are written again, as if the one of train were missing, too."""
        store, _, _ = begun
        train = [
            msgspec.structs.replace(receipt(0, number, then=(0, 5 + number)), beside=("val",)) for number in range(2)
        ]
        write_receipts(store, *train, msgspec.structs.replace(train[0], split="val", beside=()))
        found = read_receipts(LocalStorage(store))
        assert [(entry.split, entry.number) for entry in found[0]] == [("val", 0), ("train", 0)]

    def test_after_a_gap_do_not_count(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, _, _ = begun
        write_receipts(store, *(receipt(0, number, then=(0, 5)) for number in (0, 1, 3, 4)))
        assert [entry.number for entry in read_receipts(LocalStorage(store))[0]] == [0, 1]
        write_receipts(store, receipt(1, 1))
        assert unit_receipts(LocalStorage(store), 1) == []

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"unit": -1}'])
    def test_that_cannot_be_read_are_none(self, begun: tuple[Path, Plan, TokenizerFiles], data: bytes) -> None:
        (begun[0] / SHARDS / "train-00000-000.json").write_bytes(data)
        assert read_receipts(LocalStorage(begun[0])) == {}
        assert unit_receipts(LocalStorage(begun[0]), 0) == []

    def test_other_files_are_none(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        for name in ("train-00000-000.bin", "train-00000-000.json.tmp", "train-00000-000.pos"):
            (begun[0] / SHARDS / name).write_bytes(b"?")
        assert read_receipts(LocalStorage(begun[0])) == {}


class TestRemaining:
    def test_is_all_at_first(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        _, plan, _ = begun
        assert remaining_tasks(plan, {}) == [Task(unit=unit, slices=slices) for unit, slices in enumerate(plan.units)]

    def test_is_what_no_receipt_speaks_for(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        _, plan, _ = begun
        done = {
            0: [receipt(0, 0, then=(0, 50)), receipt(0, 1)],  # finished
            1: [receipt(1, 0, then=(0, 400)), receipt(1, 1, then=(0, 500))],  # goes on
            3: [receipt(3, 0)],
        }
        assert remaining_tasks(plan, done) == [
            Task(unit=1, slices=plan.units[1], first_shard=2, earlier=done[1], start=(0, 500)),
            Task(unit=2, slices=plan.units[2]),
        ]

    def test_keeps_what_is_known_about_the_task(self) -> None:
        task = Task(unit=0, slices=[Slice(0)], careful=((0, 1), (0, 9)), quarantined={(0, 5): "hung-tokenizer"})
        left = continued(task, [receipt(0, 0, then=(0, 3))])
        assert left is not None
        assert (left.careful, left.quarantined) == (task.careful, task.quarantined)

    def test_a_limit_shrinks_by_what_was_written_since(self) -> None:
        task = Task(unit=0, slices=[Slice(0)], limit=100)
        first = continued(task, [receipt(0, 0, docs=30, then=(0, 3))])
        assert first is not None
        assert first.limit == 70
        second = continued(first, [receipt(0, 0, docs=30, then=(0, 3)), receipt(0, 1, docs=20, then=(0, 9))])
        assert second is not None
        assert (second.limit, second.first_shard, second.start) == (50, 2, (0, 9))

    @given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
    def test_done_and_left_are_all_there_is(self, shards: list[int], data: st.DataObject) -> None:
        """Any number of shards a unit, any number of them done."""
        units = [[Slice(unit)] for unit in range(len(shards))]
        plan = Plan(format_version=1, inputs=[], units=units, options={}, tokenizer=None)  # type: ignore[arg-type]
        done = {}
        for unit, count in enumerate(shards):
            all_of_it = [receipt(unit, i, then=(unit, i + 1) if i < count else None) for i in range(count + 1)]
            for entry, after in pairwise(all_of_it):
                assert entry.number + 1 == after.number
            done[unit] = all_of_it[: data.draw(st.integers(0, count + 1))]
        left = {task.unit: task for task in remaining_tasks(plan, done)}
        for unit, count in enumerate(shards):
            assert (unit in left) == (len(done[unit]) <= count)
            if unit in left:
                assert left[unit].first_shard == len(done[unit])
                assert left[unit].start == ((unit, len(done[unit])) if done[unit] else None)


class TestStrays:
    def test_are_removed_and_nothing_else(self, begun: tuple[Path, Plan, TokenizerFiles]) -> None:
        store, _, _ = begun
        known = [receipt(0, 0, then=(0, 9), rejects={"bad-json": 2}), receipt(0, 1)]
        write_receipts(store, *known)
        shards = {f"{entry.name}.{extension}" for entry in known for extension in ("bin", "ends", "pos", "json")}
        rejects = {"00000-000.jsonl"}
        strays = {
            SHARDS: [
                "train-00000-000.bin.tmp",
                "train-00000-001.json.tmp",
                "train-00000-002.bin",
                "train-00007-000.pos",
                ".nfs0001",
            ],
            REJECTS: ["00000-000.jsonl.tmp", "00000-001.jsonl", "00000-002.jsonl", "00007-000.jsonl", ".nfs0001", "x"],
        }
        for folder, names in ((SHARDS, shards), (REJECTS, rejects)):
            for name in (*names, *strays[folder]):
                if not (store / folder / name).exists():
                    (store / folder / name).write_bytes(b"?")
            LocalStorage(store).create(f"{folder}/{min(names)}").write(b"of one that died before it was done")
        remove_strays(LocalStorage(store), {0: known})
        assert {path.name for path in (store / SHARDS).iterdir()} == shards
        assert {path.name for path in (store / REJECTS).iterdir()} == rejects


class _InterruptedWhileOpening:
    """A system in which the signal to end comes when a file was opened, and nobody knows of it yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, *args: Any, **kwargs: Any) -> int:
        descriptor = os.open(path, *args, **kwargs)
        if ".ends." in str(path):
            os.close(descriptor)
            raise KeyboardInterrupt
        return descriptor


def test_an_interruption_leaves_nothing_half_written(tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "a.jsonl", 40), tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        build_store([source], LocalStorage(out, _InterruptedWhileOpening()), build_config("bytes", {}))
    assert (out / "plan.json").exists()
    assert not list(out.rglob("*.tmp"))
