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
from crash.power import Change, Disk, after_power_loss
from tokpress.formats.target import METADATA
from tokpress.store import durable

EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
SEED = int(os.environ.get("TOKPRESS_CRASH_SEED", "0"))
KILLS = 60 if EVERYTHING else 3
LOSSES = 300 if EVERYTHING else 12
FORMATS: dict[str, dict[str, Any]] = {
    "datatrove": {},
    "npy": {"seq_len": 64},
    "mds": {},
    "nanogpt": {},
    "arrow": {"seq_len": 64},
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


@pytest.mark.parametrize("to", ["datatrove", "npy"])
def test_after_random_kills_the_export_is_the_same(store: Path, tmp_path: Path, to: str) -> None:
    tokpress.export(store, to=to, out=tmp_path / "whole", **FORMATS[to])
    expected = contents(tmp_path / "whole")
    rng = random.Random(SEED)
    hits = 0
    for _ in range(KILLS):
        out = tmp_path / "out"
        receipts = out.with_name("out.partial") / "parts"
        process = start(store, to, out)
        wanted = rng.randrange(0, 3)
        while process.poll() is None and not (receipts.is_dir() and len(list(receipts.iterdir())) >= wanted):
            sleep(0.0005)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -9), errors.decode()
        hits += process.returncode == -9
        if out.exists():  # then all of it is there
            assert contents(out) == expected
        assert tokpress.export(store, to=to, out=out, **FORMATS[to])
        assert contents(out) == expected
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]
        shutil.rmtree(out)
    assert hits


def recorded(monkeypatch: pytest.MonkeyPatch, store: Path, to: str, out: Path, **options: Any) -> list[Change]:
    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(durable, "os", disk)
        tokpress.export(store, to=to, out=out, workers=2, **FORMATS[to], **options)
    return disk.changes


@pytest.mark.parametrize("to", ["datatrove", "mds", "arrow"])
def test_after_a_loss_of_power_it_goes_on_to_the_same(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    root = tmp_path / "root"
    out = root / "out"
    changes = recorded(monkeypatch, store, to, out)
    expected = contents(out)
    # The lock made the working directory before anything was written into it.
    changes = [Change("mkdir", root / "out.partial"), Change("sync-directory", root), *changes]
    rng = random.Random(SEED)
    for number in range(LOSSES):
        when = rng.randint(2, len(changes))
        image = tmp_path / f"image-{number}"
        after_power_loss(changes[:when], root, image, rng)
        if (image / "out").exists():
            assert contents(image / "out") == expected, (
                f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} changes"
            )
        shutil.rmtree(root)
        image.rename(root)
        tokpress.export(store, to=to, out=out, **FORMATS[to])
        assert contents(out) == expected, f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} changes"
        assert [path.name for path in root.iterdir()] == ["out"]


def test_an_export_is_there_at_the_end_whatever_happens_next(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    changes = recorded(monkeypatch, store, "datatrove", root / "out")
    changes = [Change("mkdir", root / "out.partial"), Change("sync-directory", root), *changes]
    for seed in range(10):
        after_power_loss(changes, root, tmp_path / str(seed), random.Random(seed))
        assert (tmp_path / str(seed) / "out" / METADATA).is_file()
        assert contents(tmp_path / str(seed) / "out") == contents(root / "out")


def test_an_import_goes_on_to_the_same_store(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokpress.export(store, to="datatrove", out=tmp_path / "ds")
    out = tmp_path / "adopted"

    def adopt() -> tokpress.Store:
        return tokpress.import_tokens(tmp_path / "ds" / "val", format="datatrove", tokenizer="bytes", out=out)

    disk = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(durable, "os", disk)
        fingerprint = adopt().fingerprint
    rng = random.Random(SEED)
    for number in range(LOSSES // 2):
        when = rng.randint(0, len(disk.changes))
        after_power_loss(disk.changes[:when], out, tmp_path / f"image-{number}", rng)
        check_honest(tmp_path / f"image-{number}")
        shutil.rmtree(out)
        (tmp_path / f"image-{number}").rename(out)
        assert adopt().fingerprint == fingerprint
        assert tokpress.open(out).verify().ok, f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} changes"
