"""A store that is damaged between two runs: the next one mends it, and ends with the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from conftest import stored

from attack.scene import Scene
from attack.table import Case, Outcome

Damage = Callable[[Path], None]


def deleted(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_to_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 8)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x40
    path.write_bytes(data)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Damage] = [deleted, emptied, cut_to_half, zeroed, grown, flipped]
FILES = ["shards/*.bin", "shards/*.ends", "shards/*.pos", "rejects/*.jsonl"]


def _stopped(scene: Scene) -> dict[str, bytes]:
    """A store with rejects whose run ended just before its manifest; what it is to become."""
    source = scene.corpus(200)
    source.write_text(source.read_text() + "no record\n" * 5)
    scene.build(source, *_OPTIONS)
    whole = stored(scene.out)
    (scene.out / "manifest.json").unlink()
    return whole


_OPTIONS = ("--max-rejects", "100%", "--shard-size", "1kB", "--unit-size", "3kB", "--workers", "1")


def _damaged(pattern: str, damage: Damage, which: int) -> Callable[[Scene], Outcome]:
    def make(scene: Scene) -> Outcome:
        whole = _stopped(scene)
        damage(sorted(scene.out.glob(pattern))[which])
        outcome = scene.build(scene.path / "corpus.jsonl", *_OPTIONS)
        assert outcome.code != 0 or stored(scene.out) == whole, outcome
        return outcome

    return make


def _mended(scene: Scene, outcome: Outcome) -> None:
    assert outcome.code == 0, outcome
    assert scene.store.verify().ok


def _named(scene: Scene, outcome: Outcome) -> None:
    """Where it cannot be mended, it is named, and nothing is sealed."""
    assert outcome.code != 0
    assert str(scene.out) in outcome.err, outcome
    assert not (scene.out / "manifest.json").exists()


CASES = [
    *(
        Case(f"{pattern} {damage.__name__.replace('_', ' ')}, {name}", _damaged(pattern, damage, which), _mended)
        for pattern in FILES
        for damage in DAMAGES
        if not (pattern.startswith("rejects") and damage in (grown, flipped))  # no checksum until the seal
        for name, which in ([("first", 0), ("last", -1)] if not pattern.startswith("rejects") else [("first", 0)])
    ),
    *(
        Case(f"receipt {damage.__name__.replace('_', ' ')}", _damaged("shards/*.json", damage, 1), _mended)
        for damage in (deleted, emptied, cut_to_half, zeroed)
    ),
    *(
        Case(f"{pattern} is a directory", _damaged(pattern, a_directory, 0), _named)
        for pattern in ("shards/*.bin", "shards/*.json")
    ),
]
