"""Inputs of which nothing can come: an error soon, not minutes of silence."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import zstandard

from attack.scene import Scene
from attack.table import Case, Outcome, refused

_MEGABYTES = 5


def _of(piece: bytes) -> bytes:
    return piece * (_MEGABYTES * 10**6 // len(piece))


JUNK = {
    "x": b"x\n",
    "braces": b"{\n",
    "numbers": b"1\n",
    "empty objects": b"{}\n",
    "another field": b'{"content": "x"}\n',
    "no text but a number": b'{"text": 1}\n',
    "zeros": b"\0\0\0\n",
    "not UTF-8": b'{"text": "\xff"}\n',
    "half objects": b'{"text": "a\n',
    "arrays": b'[{"text": "a"}]\n',
    "deep nesting": b'{"text": ' + b"[" * 200 + b"\n",
}


def _junk(data: bytes, suffix: str, pack: Callable[[bytes], bytes]) -> Callable[[Scene], Outcome]:
    def make(scene: Scene) -> Outcome:
        path = scene.path / f"corpus.{suffix}"
        path.write_bytes(pack(data))
        return scene.build(path, process=True)

    return make


def _as_it_is(data: bytes) -> bytes:
    return data


CASES = [
    *(
        Case(name, _junk(_of(piece), "jsonl", _as_it_is), refused("were rejected", code=3))
        for name, piece in JUNK.items()
    ),
    *(
        Case(f"{name}, {suffix}", _junk(_of(piece), suffix, pack), refused("were rejected", code=3))
        for name, piece in list(JUNK.items())[:3]
        for suffix, pack in (("jsonl.gz", gzip.compress), ("jsonl.zst", zstandard.compress))
    ),
    *(
        Case(
            f"200 MB of newlines in {suffix}",
            _junk(b"\n" * 200_000_000, suffix, pack),
            refused("hold no record", code=3),
        )
        for suffix, pack in (("jsonl.zst", zstandard.compress),)
    ),
]
