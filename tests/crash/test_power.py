"""The power fails after any change of the disk, and what was not synced is gone: what is left is honest, and goes on."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import msgspec
import pytest

import tokpress
from crash.building import check_honest, contents, write_corpus
from crash.power import Change, Disk, QuickDisk, after_power_loss, in_parts, power_loss
from tokpress.records import TokenizerFiles
from tokpress.run import coordinator
from tokpress.run.clusters.inline import InlineCluster
from tokpress.storage import local
from tokpress.storage.local import LocalStorage
from tokpress.store import unfinished
from tokpress.store.receipts import read_receipts

EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
LOSSES = pytest.mark.parametrize("losses", in_parts(400 if EVERYTHING else 25, 25), ids=lambda part: f"from-{part[0]}")
OPTIONS = {"tokenizer": "bytes", "unit_size": "20kB", "shard_size": "6kB", "max_rejects": "100%", "workers": 1}

SUPERVISED = {"prompt_field": "text", "completion_field": "answer", "val_fraction": 0.3, "max_length": 150}
SUPERVISED |= {"overlong": "split"}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A continued run usually gets processes, to be safe from what killed the one before. And none waits for the disk,
    whose real power does not fail."""
    monkeypatch.setattr(coordinator, "cluster_for", lambda job, storage, **_: InlineCluster(job, storage))
    monkeypatch.setattr(local, "os", QuickDisk())


def build(inputs: list[Path], out: Path, **options: object) -> None:
    tokpress.build(inputs, out=out, **OPTIONS, **options)  # type: ignore[arg-type]


def recorded(monkeypatch: pytest.MonkeyPatch, inputs: list[Path], out: Path, **options: object) -> list[Change]:
    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(local, "os", disk)
        build(inputs, out, **options)
    return disk.changes


@pytest.mark.usefixtures("in_this_process")
class TestPowerLoss:
    @LOSSES
    @pytest.mark.parametrize("options", [{}, SUPERVISED], ids=["plain", "supervised"])
    def test_a_build_goes_on_to_the_same_store(
        self, quick_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], losses: range
    ) -> None:
        inputs = write_corpus(quick_path / "in", 3)[: 1 if options else None]
        out = quick_path / "store"
        changes = recorded(monkeypatch, inputs, out, **options)
        expected = contents(out)
        assert len(changes) > 500
        for number in losses:
            image = quick_path / f"image-{number}"
            with power_loss(number, changes, out, image):
                check_honest(image)
                shutil.rmtree(out)
                image.rename(out)
                build(inputs, out, **options)
                assert contents(out) == expected

    def test_what_is_finished_stays_finished(self, quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inputs = write_corpus(quick_path / "in", 4)[:1]
        root, place = quick_path / "root", Path("made/for/it")
        root.mkdir()
        changes = recorded(monkeypatch, inputs, root / place)
        expected = contents(root / place)
        for seed in range(20):
            after_power_loss(changes, root, quick_path / f"image-{seed}", random.Random(seed))
            assert contents(quick_path / f"image-{seed}" / place) == expected

    @LOSSES
    def test_overwriting_leaves_the_old_the_new_or_something_to_go_on_with(
        self, quick_path: Path, monkeypatch: pytest.MonkeyPatch, losses: range
    ) -> None:
        inputs = write_corpus(quick_path / "in", 5)[:1]
        out = quick_path / "store"
        before = recorded(monkeypatch, inputs, out, eos=False)
        changes = before + recorded(monkeypatch, inputs, out, overwrite=True)
        expected = contents(out)
        for number in losses:
            image = quick_path / f"image-{number}"
            with power_loss(number, changes, out, image, first=len(before)):
                check_honest(image)
                shutil.rmtree(out)
                image.rename(out)
                build(inputs, out, overwrite=True)
                assert contents(out) == expected

    def test_a_plan_that_is_replaced_has_no_receipts_of_the_old_one(
        self, quick_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else what --overwrite was to replace would be gone on with."""
        inputs = write_corpus(quick_path / "in", 5)[:1]
        out = quick_path / "store"
        changes = recorded(monkeypatch, inputs, out)
        old = unfinished.stored_plan(LocalStorage(out))
        assert old is not None
        new = msgspec.structs.replace(old, options=old.options | {"eos_id": None})
        disk = Disk()
        with monkeypatch.context() as patch:
            patch.setattr(local, "os", disk)
            unfinished.begin(LocalStorage(out), new, TokenizerFiles("bytes", {}))
        for seed in range(10):
            image = LocalStorage(quick_path / f"image-{seed}")
            after_power_loss(changes + disk.changes, out, image.root, random.Random(seed))
            assert (unfinished.stored_plan(image), read_receipts(image)) == (new, {})


class TestDisk:
    """The disk of these tests loses what a real one may lose: otherwise they would prove nothing."""

    @pytest.fixture
    def disk(self, monkeypatch: pytest.MonkeyPatch) -> Disk:
        disk = Disk()
        monkeypatch.setattr(local, "os", disk)
        return disk

    @pytest.fixture
    def store(self, quick_path: Path) -> Path:
        (quick_path / "store").mkdir()
        return quick_path / "store"

    def found(self, disk: Disk, store: Path, name: str) -> set[bytes | None]:
        """What may be found under a name in the end; None: nothing, or a directory."""
        found = set()
        for seed in range(40):
            image = store.with_name(f"image-{seed}")
            after_power_loss(disk.changes, store, image, random.Random(seed))
            found.add((image / name).read_bytes() if (image / name).is_file() else None)
            shutil.rmtree(image)
        return found

    def test_a_file_that_was_not_synced_before_its_rename_is_there_and_wrong_inside(
        self, disk: Disk, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = LocalStorage(store).create("a")
        file.write(b"content")
        with monkeypatch.context() as patch:
            patch.setattr(disk, "fsync", lambda descriptor: None)
            file.commit()
        LocalStorage(store).barrier("")
        found = self.found(disk, store, "a")
        assert b"" in found
        assert None not in found
        assert len(found) > 5

    def test_a_name_is_kept_with_the_directory_that_it_stands_in(self, disk: Disk, store: Path) -> None:
        with LocalStorage(store).create("a") as file:
            file.write(b"content")
        assert self.found(disk, store, "a") == {None, b"content"}
        LocalStorage(store).barrier("")
        assert self.found(disk, store, "a") == {b"content"}

    def test_a_rename_is_kept_with_the_directory_that_it_leads_into(self, disk: Disk, store: Path) -> None:
        for name in ("from", "from/moved"):
            LocalStorage(store).prepare(name)
        LocalStorage(store).put("from/moved/a", b"content")
        LocalStorage(store).barrier("from")
        LocalStorage(store).barrier("")
        LocalStorage(store).rename("from/moved", "moved")
        LocalStorage(store).barrier("from")
        assert self.found(disk, store, "moved/a") == {None, b"content"}
        LocalStorage(store).barrier("")
        assert self.found(disk, store, "moved/a") == {b"content"}
        assert self.found(disk, store, "from/moved/a") == {None}

    def test_what_another_program_wrote_is_kept_if_it_is_synced(self, disk: Disk, store: Path) -> None:
        source = store.with_name("source")
        source.write_bytes(b"content")
        LocalStorage(store).link(source, "a")
        LocalStorage(store).barrier("")
        assert len(self.found(disk, store, "a")) > 5
        LocalStorage(store).sync(source)
        assert self.found(disk, store, "a") == {b"content"}

    def test_a_reserved_file_is_kept_from_each_write_on(
        self, disk: Disk, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        LocalStorage(store).reserve("a", 8)
        LocalStorage(store).write_at("a", 4, [b"efgh"])
        LocalStorage(store).barrier("")
        assert self.found(disk, store, "a") == {bytes(4) + b"efgh"}
        with monkeypatch.context() as patch:
            patch.setattr(disk, "fsync", lambda descriptor: None)
            LocalStorage(store).write_at("a", 0, [b"ab", b"cd"])
        found = self.found(disk, store, "a")
        assert {bytes(4) + b"efgh", b"abcdefgh", b"ab\0\0efgh"} <= found
        assert {data[4:] for data in found if data} == {b"efgh"}
        assert len(found) > 5

    def test_one_that_is_written_through_a_map_when_it_is_synced(self, disk: Disk, store: Path) -> None:
        LocalStorage(store).reserve("a", 4)
        LocalStorage(store).barrier("")
        (store / "a").write_bytes(b"abcd")
        assert b"abcd" not in self.found(disk, store, "a")
        LocalStorage(store).sync(store / "a")
        assert self.found(disk, store, "a") == {b"abcd"}

    def test_what_is_replaced_was_moved_away_before(self, disk: Disk, store: Path) -> None:
        """Whatever is synced: no disk can keep a directory in the place of one with something in it."""
        for name in ("new", "out", "aside"):
            LocalStorage(store).prepare(name)
            LocalStorage(store).put(f"{name}/a", name.encode())
        LocalStorage(store).barrier("")
        LocalStorage(store).rename("out", "aside/old")
        LocalStorage(store).rename("new", "out")
        assert self.found(disk, store, "out/a") == {None, b"out", b"new"}
        LocalStorage(store).barrier("")
        assert self.found(disk, store, "out/a") == {b"new"}
        assert self.found(disk, store, "aside/old/a") == {b"out"}
