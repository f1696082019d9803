"""Inputs that change while they are read: of half the old and half the new nothing may come."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import zstandard

import tokpress
from attack.scene import Scene
from attack.table import Case, Outcome
from tokpress.run import events
from tokpress.run.events import Event

_DOCS = 400


def _lines(word: str) -> bytes:
    return "".join(json.dumps({"text": f"document {number:04} {word}"}) + "\n" for number in range(_DOCS)).encode()


def _parquet(word: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table({"text": [f"document {number:04} {word}" for number in range(_DOCS)]})
    pq.write_table(table, sink, row_group_size=50, compression="none", use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


FORMATS: dict[str, Callable[[str], bytes]] = {
    "jsonl": _lines,
    "jsonl.gz": lambda word: gzip.compress(_lines(word), compresslevel=0, mtime=0),
    "jsonl.zst": lambda word: zstandard.compress(_lines(word)),
    "txt": lambda word: _lines(word),
    "parquet": _parquet,
}


def overwritten(path: Path, new: bytes) -> None:
    with path.open("r+b") as file:
        file.write(new)


def cut_to_half(path: Path, new: bytes) -> None:
    os.truncate(path, path.stat().st_size // 2)


def appended_to(path: Path, new: bytes) -> None:
    with path.open("ab") as file:
        file.write(new)


def replaced(path: Path, new: bytes) -> None:
    path.with_name("new").write_bytes(new)
    path.with_name("new").replace(path)


def removed(path: Path, new: bytes) -> None:
    path.unlink()


def emptied(path: Path, new: bytes) -> None:
    path.write_bytes(b"")


CHANGES = [overwritten, cut_to_half, appended_to, replaced, removed, emptied]
MOMENTS: dict[str, type[Event]] = {"while it is read": events.Advanced, "before the seal": events.Stopped}


def _changing(
    suffix: str, change: Callable[[Path, bytes], None], moment: type[Event], **options: object
) -> Callable[[Scene], Outcome]:
    def make(scene: Scene) -> Outcome:
        path = scene.path / f"corpus.{suffix}"
        path.write_bytes(FORMATS[suffix]("old"))
        os.utime(path, (1, 1))  # any change is later
        left = [None]
        small = {"batch_bytes": 2000} | options  # so that a part of the file is read, and not all of it

        def meddle(event: Event) -> None:
            if isinstance(event, moment) and left:
                left.pop()
                change(path, FORMATS[suffix]("new"))

        outcome = scene.call(
            lambda: tokpress.build(path, tokenizer="bytes", out=scene.out, reporter=meddle, **small)  # type: ignore[arg-type]
        )
        assert not left, "nothing was changed"
        return outcome

    return make


def not_mixed(scene: Scene, outcome: Outcome) -> None:
    """An error that names the file, no store, and no receipt for what was read of a changed file."""
    assert outcome.code != 0
    assert "corpus." in outcome.err, outcome.err
    assert "changed" in outcome.err or "cannot read" in outcome.err, outcome.err
    assert not (scene.out / "manifest.json").exists()


def _nothing_vouched_for(scene: Scene, outcome: Outcome) -> None:
    not_mixed(scene, outcome)
    assert not list((scene.out / "shards").glob("*.json"))


CASES = [
    *(
        Case(
            f"{suffix} {change.__name__.replace('_', ' ')} {moment}",
            _changing(suffix, change, MOMENTS[moment]),
            _nothing_vouched_for if moment == "while it is read" else not_mixed,
        )
        for suffix in FORMATS
        for change in CHANGES
        for moment in MOMENTS
    ),
    *(
        Case(
            f"in a worker: {change.__name__.replace('_', ' ')} {moment}",
            _changing("jsonl", change, MOMENTS[moment], workers=2, unit_size=4000),
            not_mixed,
        )
        for change in CHANGES[:3]
        for moment in MOMENTS
    ),
    *(
        Case(
            f"limited: {change.__name__.replace('_', ' ')}",
            _changing("jsonl", change, events.Advanced, limit=10),
            _nothing_vouched_for,
        )
        for change in CHANGES[:3]
    ),
]
