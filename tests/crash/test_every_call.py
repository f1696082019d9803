"""Every call by which a storage changes the disk fails, or is the last one: what is left is honest, and goes on.

Through the port: `FaultyDisk` stands in for `os` in a `LocalStorage`, as the lossy disk does. So each call of each kind is
reached, whatever thread makes it, in milliseconds. `make crash` goes through all of them, the ordinary tests through a
seeded choice. `test_syscalls` does the same from outside, to whole processes.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from formats.stores import furnish, template

import tokpress
from crash.building import check_honest, write_corpus
from crash.building import contents as store_contents
from crash.power import SEED, QuickDisk
from tokpress.formats import rows
from tokpress.run import coordinator
from tokpress.run.clusters.inline import InlineCluster
from tokpress.storage import local

EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
PARTS = 4 if EVERYTHING else 1
FEW = 4  # of the calls, for each fault, if not everything is tried
CHANGING = ("open", "write", "pwrite", "posix_fallocate", "fsync", "link", "replace", "unlink", "rmdir", "mkdir")
FAULTS = {  # and the calls that can have them
    "EIO": CHANGING,
    "ENOSPC": ("open", "write", "pwrite", "posix_fallocate", "fsync", "link", "mkdir"),
    "EPERM": ("link",),  # a file system without links
    "short": ("write", "pwrite"),
    "death": CHANGING,
}
OPTIONS: dict[str, Any] = {"tokenizer": "bytes", "unit_size": "60kB", "shard_size": "40kB", "max_rejects": "100%"}


class Death(BaseException):
    """Nothing of this process happens any more."""


class FaultyDisk(QuickDisk):
    """`os`, but that the call with this number fails. With "death" so do all that come after it."""

    def __init__(self, number: int, fault: str) -> None:
        self.calls: list[str] = []
        self._number = number
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in CHANGING else getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """Nothing waits for the disk."""
        self._call("fsync", descriptor)

    def _call(self, kind: str, *arguments: Any, **keywords: Any) -> Any:
        self.calls.append(kind)
        here, dead = len(self.calls) - 1 == self._number, len(self.calls) > self._number and self._fault == "death"
        if dead:
            raise Death
        if here and self._fault == "short":
            if kind in FAULTS["short"] and len(arguments[1]) > 1:
                arguments = (arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
        elif here:
            number = getattr(errno, self._fault)
            raise OSError(number, os.strerror(number))
        return None if kind == "fsync" else getattr(os, kind)(*arguments, **keywords)


def all_files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class Story:
    """Something that is done to `out`, and what must have come of it in the end."""

    def __init__(
        self, act: Callable[[Path], object], *, is_store: bool, before: Callable[[Path], object] | None = None
    ):
        self.act = act
        self.before = before or (lambda _: None)
        self.is_store = is_store

    def contents(self, out: Path) -> dict[str, bytes]:
        return store_contents(out) if self.is_store else all_files(out)


@pytest.fixture
def stories(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Story]:
    monkeypatch.setattr(coordinator, "cluster_for", lambda job, storage, **_: InlineCluster(job, storage))
    monkeypatch.setattr(local, "os", QuickDisk())
    monkeypatch.setattr(rows.Sequences.ranges, "__defaults__", (3000,))
    corpus = write_corpus(quick_path / "in", 1)[:1]
    rng = random.Random(SEED)
    lengths = {split: [[rng.randrange(0, 200) for _ in range(20)] for _ in range(2)] for split in ("train", "val")}
    store = furnish(template(quick_path / "template"), lengths)
    tokpress.export(store, to="datatrove", out=quick_path / "given")

    def export(to: str, out: Path, **options: Any) -> None:
        tokpress.export(store, to=to, out=out, workers=1, **options)

    def copied(out: Path) -> None:
        shutil.copytree(store, out)

    return {
        "build": Story(lambda out: tokpress.build(corpus, out=out, **OPTIONS), is_store=True),
        "overwrite": Story(
            lambda out: tokpress.build(corpus, out=out, overwrite=True, **OPTIONS),
            is_store=True,
            before=lambda out: tokpress.build(corpus, out=out, eos=False, **OPTIONS),
        ),
        "import": Story(
            lambda out: tokpress.import_tokens(
                quick_path / "given" / "val", format="datatrove", tokenizer="bytes", out=out
            ),
            is_store=True,
        ),
        "pack": Story(lambda out: tokpress.pack(out, seq_len=64, method="bestfit"), is_store=False, before=copied),
        "export npy": Story(partial(export, "npy", seq_len=64), is_store=False),  # written at offsets
        "export datatrove": Story(partial(export, "datatrove"), is_store=False),  # linked
        "export megatron": Story(partial(export, "megatron", merge=True), is_store=False),  # through maps
        "export arrow": Story(partial(export, "arrow", seq_len=64), is_store=False),
    }


STORIES = ["build", "overwrite", "import", "pack", "export npy", "export datatrove", "export megatron", "export arrow"]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", STORIES)
def test_what_is_left_is_honest_and_goes_on(
    stories: dict[str, Story], quick_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: str, part: int
) -> None:
    story = stories[name]

    def acted(out: Path, number: int) -> FaultyDisk:
        disk = FaultyDisk(number, fault)
        with monkeypatch.context() as patch:
            patch.setattr(local, "os", disk)
            with suppress(OSError, tokpress.errors.TokpressError, Death):
                story.act(out)
        return disk

    out = quick_path / "out"  # always the same one: some formats name it
    story.before(out)
    calls = acted(out, 10**9).calls
    expected = story.contents(out)
    shutil.rmtree(out)
    assert len(calls) > 10
    reached = [number for number, kind in enumerate(calls) if kind in FAULTS[fault]]
    chosen = reached[part::PARTS]
    if not EVERYTHING:
        chosen = random.Random(f"{SEED} {name} {fault}").sample(chosen, min(FEW, len(chosen)))
    for number in chosen:
        story.before(out)
        try:
            disk = acted(out, number)
            assert len(disk.calls) > number, "nothing failed"
            if story.is_store and out.exists():
                check_honest(out)
            story.act(out)
            assert story.contents(out) == expected
        except BaseException as error:
            error.add_note(f"{name}: {fault} at call {number}, {calls[number]}")
            raise
        for path in (out, out.with_name("out.partial")):
            shutil.rmtree(path, ignore_errors=True)
