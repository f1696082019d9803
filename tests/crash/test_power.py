"""The power fails after any change of the disk, and what was not synced is gone: what is left is honest, and goes on."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokpress
from crash.building import check_honest, contents, write_corpus
from crash.power import Change, Disk, after_power_loss
from tokpress.run import coordinator
from tokpress.run.inline import InlineWorker
from tokpress.store import durable

EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
SEED = int(os.environ.get("TOKPRESS_CRASH_SEED", "0"))
LOSSES = 400 if EVERYTHING else 25
OPTIONS = {"tokenizer": "bytes", "unit_size": "20kB", "shard_size": "6kB", "max_rejects": "100%", "workers": 1}

SUPERVISED = {"prompt_field": "text", "completion_field": "answer", "val_fraction": 0.3, "max_length": 150}
SUPERVISED |= {"overlong": "split"}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A continued run usually gets processes, to be safe from what killed the one before."""
    monkeypatch.setattr(coordinator, "_executor", lambda job, **options: InlineWorker(job))


def build(inputs: list[Path], out: Path, **options: object) -> None:
    tokpress.build(inputs, out=out, **OPTIONS, **options)  # type: ignore[arg-type]


def recorded(monkeypatch: pytest.MonkeyPatch, inputs: list[Path], out: Path, **options: object) -> list[Change]:
    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(durable, "os", disk)
        build(inputs, out, **options)
    return disk.changes


def losses(changes: list[Change], seed: int) -> Iterator[tuple[int, random.Random]]:
    rng = random.Random(seed)
    for _ in range(LOSSES):
        yield rng.randint(0, len(changes)), rng


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("in_this_process")
class TestPowerLoss:
    @pytest.mark.parametrize("options", [{}, SUPERVISED], ids=["plain", "supervised"])
    def test_a_build_goes_on_to_the_same_store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
    ) -> None:
        inputs = write_corpus(tmp_path / "in", 3)[: 1 if options else None]
        out = tmp_path / "store"
        changes = recorded(monkeypatch, inputs, out, **options)
        expected = contents(out)
        assert len(changes) > 500
        for number, (when, rng) in enumerate(losses(changes, SEED)):
            image = tmp_path / f"image-{number}"
            after_power_loss(changes[:when], out, image, rng)
            check_honest(image)
            shutil.rmtree(out)
            image.rename(out)
            build(inputs, out, **options)
            assert contents(out) == expected, f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} changes"

    def test_what_is_finished_stays_finished(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inputs = write_corpus(tmp_path / "in", 4)[:1]
        out = tmp_path / "store"
        changes = recorded(monkeypatch, inputs, out)
        for seed in range(20):
            after_power_loss(changes, out, tmp_path / f"image-{seed}", random.Random(seed))
            assert contents(tmp_path / f"image-{seed}") == contents(out)

    def test_overwriting_leaves_the_old_the_new_or_something_to_go_on_with(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inputs = write_corpus(tmp_path / "in", 5)[:1]
        out = tmp_path / "store"
        before = recorded(monkeypatch, inputs, out, eos=False)
        changes = before + recorded(monkeypatch, inputs, out, overwrite=True)
        expected = contents(out)
        for number, (when, rng) in enumerate(losses(changes[len(before) :], SEED)):
            image = tmp_path / f"image-{number}"
            after_power_loss(changes[: len(before) + when], out, image, rng)
            check_honest(image)
            shutil.rmtree(out)
            image.rename(out)
            build(inputs, out, overwrite=True)
            assert contents(out) == expected, f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} changes"


def test_the_disk_does_lose_what_was_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sync before the rename, a file is found whole under its name and wrong inside."""
    disk = Disk()
    monkeypatch.setattr(durable, "os", disk)
    store = tmp_path / "store"
    store.mkdir()
    file = durable.DurableFile(store / "a")
    file.write(b"content")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "fsync", lambda descriptor: None)
        file.commit()
    durable.sync_directory(store)
    found = set()
    for seed in range(30):
        after_power_loss(disk.changes, store, tmp_path / str(seed), random.Random(seed))
        found.add((tmp_path / str(seed) / "a").read_bytes())
    assert b"" in found
    assert len(found) > 5
