"""An export that is killed or loses its power leaves nothing that a reader takes for complete; the next run finishes it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from formats.stores import furnish, template

import tokpress
from crash.building import check_honest
from crash.power import SEED, Change, Disk, QuickDisk, after_power_loss, in_parts, power_loss
from tokpress.formats import rows
from tokpress.formats.target import METADATA
from tokpress.storage import local

EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"


def parts(name: str, count: int, most: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, in_parts(count, most), ids=lambda part: f"from-{part[0]}")


FORMATS: dict[str, dict[str, Any]] = {
    "datatrove": {},
    "npy": {"seq_len": 64},
    "mds": {},
    "nanogpt": {},
    "arrow": {"seq_len": 64},
    "megatron": {"merge": True},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four shards in two splits: many parts of each format, so that there is a lot to be killed in."""
    rng = random.Random(SEED)
    lengths = {split: [[rng.randrange(0, 200) for _ in range(20)] for _ in range(12)] for split in ("train", "val")}
    return furnish(template(tmp_path_factory.mktemp("crash") / "template"), lengths)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def start(store: Path, to: str, out: Path) -> subprocess.Popen[bytes]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in FORMATS[to].items()]
    command = [sys.executable, "-m", "tokpress", "export", str(store), "--to", to, "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@parts("kills", 60 if EVERYTHING else 3, 5)
@pytest.mark.parametrize("to", ["datatrove", "npy"])
def test_after_random_kills_the_export_is_the_same(store: Path, tmp_path: Path, to: str, kills: range) -> None:
    tokpress.export(store, to=to, out=tmp_path / "whole", **FORMATS[to])
    expected = contents(tmp_path / "whole")
    hits = 0
    for number in kills:
        said = f"TOKPRESS_CRASH_SEED={SEED}, kill {number}"
        out = tmp_path / "out"
        receipts = out.with_name("out.partial") / "parts"
        process = start(store, to, out)
        wanted = random.Random(f"{SEED}.{number}").randrange(0, 3)
        while process.poll() is None and not (receipts.is_dir() and len(list(receipts.iterdir())) >= wanted):
            sleep(0.0005)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -9), f"{said}: {errors.decode()}"
        hits += process.returncode == -9
        if out.exists():  # then all of it is there
            assert contents(out) == expected, said
        assert tokpress.export(store, to=to, out=out, **FORMATS[to])
        assert contents(out) == expected, said
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]
        shutil.rmtree(out)
    assert hits


@pytest.fixture
def near(store: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store, on the file system of `quick_path`, so that it can be linked; nothing waits for a disk, and parts that
    share a file are small enough for several of them."""
    monkeypatch.setattr(local, "os", QuickDisk())
    monkeypatch.setattr(rows.Sequences.ranges, "__defaults__", (3000,))
    return Path(shutil.copytree(store, quick_path / "store"))


def recorded(monkeypatch: pytest.MonkeyPatch, store: Path, to: str, out: Path, **options: Any) -> list[Change]:
    disk = Disk(store)
    with monkeypatch.context() as patch:
        patch.setattr(local, "os", disk)
        tokpress.export(store, to=to, out=out, workers=2, **FORMATS[to], **options)
    return disk.changes


@parts("losses", 300 if EVERYTHING else 12, 30)
@pytest.mark.parametrize("to", FORMATS)
def test_after_a_loss_of_power_it_goes_on_to_the_same(
    near: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, losses: range
) -> None:
    root = quick_path / "root"
    out = root / "out"
    changes = recorded(monkeypatch, near, to, out)
    expected = contents(out)
    for number in losses:
        image = quick_path / f"image-{number}"
        with power_loss(number, changes, root, image, of=to):
            if (image / "out").exists():
                assert contents(image / "out") == expected
            shutil.rmtree(root)
            image.rename(root)
            tokpress.export(near, to=to, out=out, **FORMATS[to])
            assert contents(out) == expected
            assert [path.name for path in root.iterdir()] == ["out"]


@parts("losses", 300 if EVERYTHING else 12, 30)
def test_overwriting_leaves_the_old_the_new_or_something_to_go_on_with(
    near: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch, losses: range
) -> None:
    root = quick_path / "root"
    out = root / "out"
    before = recorded(monkeypatch, near, "mds", out)
    old = contents(out)
    changes = before + recorded(monkeypatch, near, "nanogpt", out, overwrite=True)
    new = contents(out)
    for number in losses:
        image = quick_path / f"image-{number}"
        with power_loss(number, changes, root, image, first=len(before)):
            assert not (image / "out").exists() or contents(image / "out") in (old, new)
            shutil.rmtree(root)
            image.rename(root)
            tokpress.export(near, to="nanogpt", out=out, overwrite=True)
            assert contents(out) == new
            assert [path.name for path in root.iterdir()] == ["out"]


@pytest.mark.parametrize("to", ["datatrove", "nanogpt", "npy"])
def test_an_export_is_there_at_the_end_whatever_happens_next(
    near: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Also where the directories around it were made for it."""
    root, place = quick_path / "root", Path("made/for/it")
    root.mkdir()
    changes = recorded(monkeypatch, near, to, root / place)
    expected = contents(root / place)
    for seed in range(10):
        after_power_loss(changes, root, quick_path / str(seed), random.Random(seed))
        assert (quick_path / str(seed) / place / METADATA).is_file()
        assert contents(quick_path / str(seed) / place) == expected


@pytest.fixture
def given(near: Path, quick_path: Path) -> Path:
    """Token files that somebody else wrote, and that may not have reached the disk."""
    tokpress.export(near, to="datatrove", out=quick_path / "ds")
    return quick_path / "ds" / "val"


def adopt(given: Path, out: Path) -> tokpress.Store:
    return tokpress.import_tokens(given, format="datatrove", tokenizer="bytes", out=out)


def recorded_import(monkeypatch: pytest.MonkeyPatch, given: Path, out: Path) -> list[Change]:
    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(local, "os", disk)
        adopt(given, out)
    return disk.changes


@parts("losses", 150 if EVERYTHING else 6, 30)
def test_an_import_goes_on_to_the_same_store(
    given: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch, losses: range
) -> None:
    out = quick_path / "adopted"
    changes = recorded_import(monkeypatch, given, out)
    fingerprint = tokpress.open(out).fingerprint
    for number in losses:
        image = quick_path / f"image-{number}"
        with power_loss(number, changes, out, image):
            check_honest(image)
            shutil.rmtree(out)
            image.rename(out)
            assert adopt(given, out).fingerprint == fingerprint
            assert tokpress.open(out).verify().ok


def test_an_import_is_there_at_the_end_whatever_happens_next(
    given: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, place = quick_path / "root", Path("made/for/it")
    root.mkdir()
    changes = recorded_import(monkeypatch, given, root / place)
    for seed in range(10):
        after_power_loss(changes, root, quick_path / str(seed), random.Random(seed))
        assert tokpress.open(quick_path / str(seed) / place).verify().ok
