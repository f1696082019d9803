"""Other trainers' token files, each file of each format with something wrong: refused with its name, or a sound store."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import tokpress
from attack.scene import Scene
from attack.table import Case, Outcome

FILES = {  # format -> what of its export holds tokens or says where documents end
    "megatron": (".bin", ".idx"),
    "datatrove": (".ds", ".ds.index"),
    "dolma": (".npy", ".csv.gz"),
    "nanogpt": (".bin",),
    "llmc": (".bin",),
}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "with a byte behind its end": lambda data: data + b"\1",
    "with three bytes behind its end": lambda data: data + b"\1\2\3",
    "without its last byte": lambda data: data[:-1],
    "without its last five bytes": lambda data: data[:-5],
    "cut in half": lambda data: data[: len(data) // 2 | 1],
    "empty": lambda data: b"",
    "of other bytes": lambda data: random.Random(len(data)).randbytes(len(data)),
    "that begins with garbage": lambda data: b"\xff" * 64 + data[64:],
}


def _import(form: str, ending: str, damage: Callable[[bytes], bytes]) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        store = scene.built()
        exported = scene.path / "exported"
        tokpress.export(store, to=form, out=exported)
        victim = _victim(exported, ending)
        data = victim.read_bytes()
        victim.unlink()  # it may be a link of a shard
        victim.write_bytes(damage(data))
        scene.out = scene.path / "imported"
        return scene.tokpress("import", victim.parent, "--from", form, "--tokenizer", "bytes", "--out", scene.out)

    return run


def _victim(directory: Path, ending: str) -> Path:
    return sorted(path for path in directory.rglob(f"*{ending}") if path.is_file())[0]


def _named_or_sound(scene: Scene, outcome: Outcome) -> None:
    if outcome.code == 0:
        assert scene.store.verify().ok
    else:
        ends = [ending for endings in FILES.values() for ending in endings]
        assert any(ending in "".join(outcome.err.split()) for ending in ends), outcome
        assert not (scene.out / "manifest.json").exists()


CASES = [
    Case(f"{form}: a {ending} {name}", _import(form, ending, damage), _named_or_sound)
    for form, endings in FILES.items()
    for ending in endings
    for name, damage in DAMAGES.items()
]
