"""A stored plan: whole or not there, the same for the same store, refused for another, never a wild read."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from crash.power import Disk

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.packing import open_packing
from tokpress.packing.bestfit import BestFitPacking
from tokpress.packing.plan import FILES, INDEX, PlanIndex, _sealed
from tokpress.storage import local
from tokpress.storage.local import LocalStorage
from tokpress.storage.lock import LOCK, WriterLock
from tokpress.store.manifest import encode, read_record

from .conftest import MakeStore
from .stores import rows_of, write_shards

LENGTHS = [[3, 0, 25, 4, 10], [], [7, 7, 1], [0, 0], [12, 2, 9]]


@pytest.fixture
def store(make_store: MakeStore) -> tokpress.Store:
    return make_store(LENGTHS)


@pytest.fixture
def plan(store: tokpress.Store) -> Path:
    """The directory of a plan of that store."""
    tokpress.pack(store.path, seq_len=10, method="bestfit")
    return store.path / "packs" / "train-bestfit-10"


def contents(directory: Path) -> dict[str, bytes]:
    """All files but the lock: a dead process leaves it, and it is no obstacle."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*.*"))
        if path.name != LOCK
    }


class TestFiles:
    def test_are_four_arrays_and_an_index(self, plan: Path) -> None:
        assert sorted(contents(plan)) == sorted([INDEX, *(f"{name}.bin" for name in FILES)])

    def test_are_the_same_for_the_same_store(self, store: tokpress.Store, plan: Path, make_store: MakeStore) -> None:
        other = make_store(LENGTHS)
        tokpress.pack(other.path, seq_len=10, method="bestfit")
        assert contents(other.path / "packs") == contents(store.path / "packs")

    def test_are_the_same_in_every_version(self, make_store: MakeStore) -> None:
        """A loader's state names sequences by their numbers: a plan that is made again must have the same ones, also where
        best fit leaves a choice, as for the 2 here: beside 8, or beside 5 and 3."""
        store = make_store([[2, 8, 5], [0, 3, 20]])
        tokpress.pack(store.path, seq_len=10, method="bestfit")
        eight, five_three_two = [*range(2, 10), None, None], [0, 1, *range(10, 18)]
        assert read_all(store) == [eight, five_three_two, [*range(18, 28)], [*range(28, 38)]]

    def test_any_number_of_plans_stand_side_by_side(self, store: tokpress.Store, plan: Path) -> None:
        for seq_len in (1, 4, 100):
            tokpress.pack(store.path, seq_len=seq_len, method="bestfit")
        tokpress.pack(store.path, seq_len=10, method="bestfit", long_docs="truncate")
        names = sorted(path.name for path in plan.parent.iterdir())
        assert names == [
            *("train-bestfit-1", "train-bestfit-10", "train-bestfit-10-truncate"),
            *("train-bestfit-100", "train-bestfit-4"),
        ]
        assert len(open_packing(store, seq_len=1, method="bestfit")) == store.num_tokens

    def test_of_another_split(self, store: tokpress.Store) -> None:
        val = write_shards(store.path, [[5, 5, 3]], "val")
        waste = tokpress.pack(store.path, seq_len=10, method="bestfit", split="val")
        assert (waste.split, waste.sequences, waste.padding) == ("val", 2, 7)
        assert len(open_packing(val, seq_len=10, method="bestfit")) == 2
        with pytest.raises(StoreError, match="of split 'train'"):
            open_packing(val.split("train"), seq_len=10, method="bestfit")

    def test_the_store_is_still_sound(self, store: tokpress.Store, plan: Path) -> None:
        damaged = {problem.file for problem in tokpress.open(store.path).verify().problems}
        assert not [name for name in damaged if name.startswith("packs")]

    def test_a_plan_that_is_there_is_kept(self, store: tokpress.Store, plan: Path) -> None:
        before = {path.name: path.stat().st_mtime_ns for path in plan.iterdir()}
        first = tokpress.pack(store.path, seq_len=10, method="bestfit")
        assert {path.name: path.stat().st_mtime_ns for path in plan.iterdir()} == before
        assert first == open_packing(store, seq_len=10, method="bestfit").waste()

    def test_of_nothing(self, make_store: MakeStore) -> None:
        nothing: list[list[list[int]]] = [[], [[]], [[0, 0]]]
        for lengths in nothing:
            store = make_store(lengths)
            assert tokpress.pack(store.path, seq_len=10, method="bestfit").sequences == 0
            packing = open_packing(store, seq_len=10, method="bestfit")
            assert rows_of(packing) == []
            assert [packing.sequences_of(doc).tolist() for doc in range(len(store))] == [[]] * len(store)


class TestRefused:
    def test_a_plan_that_is_not_there_with_the_command_that_makes_it(self, store: tokpress.Store) -> None:
        command = f"tokpress pack {store.path} --seq-len 10 --method bestfit --long-docs truncate"
        with pytest.raises(StoreError, match=rf"has no bestfit plan for sequences of 10 .*Make it: {command}$"):
            open_packing(store, seq_len=10, method="bestfit", long_docs="truncate")

    def test_a_plan_of_other_tokens(self, store: tokpress.Store, plan: Path) -> None:
        changed = write_shards(store.path, [[3, 1], [25, 4, 10]])
        command = f"tokpress pack {store.path} --seq-len 10 --method bestfit"
        with pytest.raises(StoreError, match=f"{plan} is a plan of other tokens .*Make the plan again: {command}$"):
            open_packing(changed, seq_len=10, method="bestfit")
        assert tokpress.pack(store.path, seq_len=10, method="bestfit").tokens == changed.num_tokens
        assert len(open_packing(changed, seq_len=10, method="bestfit")) == 5

    def test_a_plan_under_another_name(self, store: tokpress.Store, plan: Path) -> None:
        shutil.copytree(plan, plan.with_name("train-bestfit-11"))
        with pytest.raises(StoreError, match="not the plan that belongs into train-bestfit-11"):
            open_packing(store, seq_len=11, method="bestfit")

    def test_a_plan_of_another_version(self, store: tokpress.Store, plan: Path) -> None:
        forge(plan, format_version=2)
        with pytest.raises(StoreError, match=r"has format version 2; this tokpress reads version 1. Update"):
            open_packing(store, seq_len=10, method="bestfit")

    def test_a_split_whose_name_leads_outside(self, store: tokpress.Store, tmp_path: Path) -> None:
        store.split_name = "../../../x"
        with pytest.raises(StoreError, match=r"cannot be named '../../../x-bestfit-10'.*Do not trust it"):
            open_packing(store, seq_len=10, method="bestfit")

    def test_a_second_writer(self, store: tokpress.Store) -> None:
        with WriterLock(store.path / "packs" / "train-bestfit-10"), pytest.raises(StoreError, match="another run"):
            tokpress.pack(store.path, seq_len=10, method="bestfit")
        assert not any((store.path / "packs").iterdir())

    def test_a_file_in_the_place_of_the_plan(self, store: tokpress.Store) -> None:
        (store.path / "packs").write_text("")
        with pytest.raises(OSError, match="packs"):
            tokpress.pack(store.path, seq_len=10, method="bestfit")


def forge(plan: Path, **changes: Any) -> None:
    """Puts other values into the index, with a checksum that fits them."""
    index = msgspec.structs.replace(read_record(LocalStorage(plan), INDEX, PlanIndex), **changes)
    (plan / INDEX).write_bytes(encode(_sealed(index)))


def read_all(store: tokpress.Store) -> list[list[int | None]]:
    packing = open_packing(store, seq_len=10, method="bestfit")
    for doc in range(len(store)):
        packing.sequences_of(doc)
    return rows_of(packing)


class TestDamaged:
    def test_each_file_is_missed(self, store: tokpress.Store, plan: Path) -> None:
        for name in FILES:
            data = (plan / f"{name}.bin").read_bytes()
            for damage in (data[:-1], data + b"\0" * 8, b"", None):
                (plan / f"{name}.bin").unlink()
                if damage is not None:
                    (plan / f"{name}.bin").write_bytes(damage)
                with pytest.raises(StoreError, match=rf"{name}\.bin .*Make the plan again: tokpress pack"):
                    open_packing(store, seq_len=10, method="bestfit")
            (plan / f"{name}.bin").write_bytes(data)
        read_all(store)

    def test_each_changed_byte_of_the_index_is_noticed(self, store: tokpress.Store, plan: Path) -> None:
        data = (plan / INDEX).read_bytes()
        for at in range(len(data)):
            (plan / INDEX).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(StoreError, match="Make the plan again"):
                open_packing(store, seq_len=10, method="bestfit")

    @pytest.mark.parametrize("seed", range(5))
    def test_numbers_that_lead_outside_never_do(self, store: tokpress.Store, plan: Path, seed: int) -> None:
        """Whatever stands in the files: pieces inside their rows and the stream, or an error that says what to run."""
        rng = random.Random(seed)
        errors = []
        for _ in range(200):
            name = rng.choice(FILES)
            path = plan / f"{name}.bin"
            data = path.read_bytes()
            array = np.frombuffer(data, "<i8" if name in ("starts", "ends") else "<u4").copy()
            nasty = [0, 1, -1, 2**31, 2**62, -(2**63), int(rng.choice(array)), rng.randrange(100)]
            array[rng.randrange(len(array))] = np.array(rng.choice(nasty)).astype(array.dtype)
            path.write_bytes(array.tobytes())
            try:
                packing = open_packing(store, seq_len=10, method="bestfit")
                for sequence in range(len(packing)):
                    pieces = packing.pieces(np.array([sequence]))
                    rows_of(packing, pieces, 1)
                    assert pieces.starts.min() >= 0
                    assert pieces.stops.max() <= store.num_tokens
                for doc in range(len(store)):
                    assert set(packing.sequences_of(doc).tolist()) <= set(range(len(packing)))
            except StoreError as error:
                errors.append(str(error))
            path.write_bytes(data)
        assert len(errors) > 50
        assert all(re.search(r"\.bin is damaged: .*Make the plan again: tokpress pack", said) for said in errors)

    @pytest.mark.parametrize(
        "ends", [(-5, -4), (1000, 1001), (-(2**62), 2), (0, 2**62), (2, 1), (2, 2), (2**62, -(2**62)), (0, 14)]
    )
    def test_a_sequence_s_pieces_are_pieces_of_the_plan(
        self, store: tokpress.Store, plan: Path, ends: tuple[int, int]
    ) -> None:
        array = np.fromfile(plan / "ends.bin", "<i8")
        array[:2] = ends
        array.tofile(plan / "ends.bin")
        with pytest.raises(StoreError, match=r"ends\.bin is damaged: a sequence has no pieces, or some that are not"):
            open_packing(store, seq_len=10, method="bestfit").pieces(np.array([1]))

    def test_counts_that_are_beyond_all_measure_are_an_error_at_once(self, store: tokpress.Store, plan: Path) -> None:
        changes: list[dict[str, Any]] = [{"pieces": 2**47}, {"sequences": 2**47}, {"pieces": 2**60}, {"pieces": -1}]
        for change in [*changes, {"files": {}}]:
            before = (plan / INDEX).read_bytes()
            forge(plan, **change)
            with pytest.raises(StoreError, match="Make the plan again"):
                open_packing(store, seq_len=10, method="bestfit")
            (plan / INDEX).write_bytes(before)

    @pytest.mark.parametrize("name", [*FILES, INDEX])
    def test_packing_again_mends_it(self, store: tokpress.Store, plan: Path, name: str) -> None:
        expected = contents(plan)
        path = plan / (name if name == INDEX else f"{name}.bin")
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        tokpress.pack(store.path, seq_len=10, method="bestfit")
        assert contents(plan) == expected


KILLED = """
import os, signal, sys
from tokpress.storage import local
import tokpress

calls = 0
def before(function):
    def counted(*arguments, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return counted

local._fsync = before(local._fsync)
os.replace = before(os.replace)
os.unlink = before(os.unlink)
local.LocalUpload.write = before(local.LocalUpload.write)
tokpress.pack(sys.argv[1], seq_len=10, method="bestfit")
"""


class TestKilled:
    """A process that dies while it writes leaves nothing that is taken for a plan."""

    @pytest.mark.parametrize("there_was", ["nothing", "a plan of other tokens", "a damaged plan"])
    def test_before_any_step(self, make_store: MakeStore, there_was: str) -> None:
        store = make_store(LENGTHS)
        tokpress.pack(store.path, seq_len=10, method="bestfit")
        expected = contents(store.path / "packs")
        expected_rows = read_all(store)
        if there_was == "a damaged plan":
            order = store.path / "packs" / "train-bestfit-10" / "order.bin"
            order.write_bytes(np.fromfile(order, "<u4")[::-1].tobytes())  # good enough to be opened
        else:
            shutil.rmtree(store.path / "packs")
        if there_was == "a plan of other tokens":
            write_shards(store.path, [[5, 5, 5, 11]])
            tokpress.pack(store.path, seq_len=10, method="bestfit")
            store = write_shards(store.path, LENGTHS)
        older = store.path.with_name("older")
        shutil.copytree(store.path, older)
        errors = []
        for step in range(1, 100):
            shutil.rmtree(store.path)
            shutil.copytree(older, store.path)
            run = subprocess.run([sys.executable, "-c", KILLED, str(store.path), str(step)], check=False)
            try:
                rows = read_all(store)
            except StoreError as error:
                errors.append(str(error))
            else:
                untouched = contents(store.path / "packs") == contents(older / "packs")
                assert rows == expected_rows or untouched
            tokpress.pack(store.path, seq_len=10, method="bestfit")
            assert contents(store.path / "packs") == expected
            if run.returncode == 0:
                break
            assert run.returncode == -signal.SIGKILL
        assert 15 < len(errors) < step - 1  # the others had their index already
        assert all("Make " in said for said in errors)

    @pytest.mark.parametrize("good", range(12))
    def test_an_error_on_the_way_leaves_nothing(
        self, store: tokpress.Store, monkeypatch: pytest.MonkeyPatch, good: int
    ) -> None:
        left = [good]
        fsync = os.fsync

        def full_disk(descriptor: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            tokpress.pack(store.path, seq_len=10, method="bestfit")
        if not (store.path / "packs" / "train-bestfit-10" / INDEX).exists():  # else all but the last sync was done
            assert not list((store.path / "packs").glob("*"))
            assert good < 11

    def test_the_index_has_its_name_only_after_all_other_names_are_on_the_disk(
        self, store: tokpress.Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file system may keep the changes of a directory in any order, if it is not told to sync them."""
        disk = Disk()
        monkeypatch.setattr(local, "os", disk)
        tokpress.pack(store.path, seq_len=10, method="bestfit")
        plan = store.path / "packs" / "train-bestfit-10"
        done = [(change.kind, change.to or change.path) for change in disk.changes]
        index = done.index(("rename", plan / INDEX))
        synced = max(at for at in range(index) if done[at] == ("sync-directory", plan))
        assert all(done.index(("rename", plan / f"{name}.bin")) < synced for name in FILES)
        assert ("sync-directory", plan) in done[index:]

    def test_a_damaged_store_leaves_nothing(self, store: tokpress.Store) -> None:
        path = store.path / "shards" / "train-00000-004.ends"
        path.write_bytes(np.array([12, 5, 23], "<i8").tobytes())
        with pytest.raises(StoreError, match=r"train-00000-004\.ends is damaged"):
            tokpress.pack(store.path, seq_len=10, method="bestfit")
        assert not list((store.path / "packs").rglob("*.*"))


class TestMethods:
    def test_a_name_meets_its_class(self, store: tokpress.Store, plan: Path) -> None:
        for method in ("concat", "bestfit", "pad"):
            assert open_packing(store, seq_len=10, method=method).name == method
        assert open_packing(store, seq_len=10).name == "concat"
        assert isinstance(open_packing(store, seq_len=10, method="bestfit"), BestFitPacking)

    def test_one_that_there_is_not(self, store: tokpress.Store) -> None:
        with pytest.raises(UsageError, match=r"no packing method 'first-fit'\. Choose one of concat, bestfit, pad"):
            open_packing(store, seq_len=10, method="first-fit")

    @pytest.mark.parametrize(
        ("method", "option", "said"),
        [
            ("bestfit", {"overlap": 1}, "--overlap is for --method concat; --method bestfit takes --long-docs"),
            ("concat", {"padding_side": "left"}, "--padding-side is for --method pad"),
            ("pad", {"seed": 1}, "--seed is no option of a packing; --method pad takes --padding-side and"),
        ],
    )
    def test_an_option_of_another_one(
        self, store: tokpress.Store, method: str, option: dict[str, Any], said: str
    ) -> None:
        calls: list[Callable[[], object]] = [
            lambda: open_packing(store, seq_len=10, method=method, **option),
            lambda: tokpress.pack(store.path, seq_len=10, method=method, **option),
        ]
        for call in calls:
            with pytest.raises(UsageError, match=said):
                call()

    def test_what_becomes_of_long_documents_must_be_known(self, store: tokpress.Store) -> None:
        with pytest.raises(UsageError, match=r"--long-docs 'drop' is not known\. Choose split or truncate"):
            tokpress.pack(store.path, seq_len=10, method="bestfit", long_docs="drop")  # type: ignore[arg-type]

    def test_the_index_can_be_read_without_tokpress(self, plan: Path) -> None:
        index = json.loads((plan / INDEX).read_bytes())
        ends, order = (np.fromfile(plan / f"{name}.bin", kind) for name, kind in (("ends", "<i8"), ("order", "<u4")))
        assert len(ends) == index["sequences"]
        assert sorted(order.tolist()) == list(range(index["pieces"]))
