"""Stores with damaged files, and everything that reads them: an error that names a file, or what was there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from attack.scene import Scene
from attack.table import Case, Must, Outcome, says

ENDS: dict[str, Callable[[list[int]], list[int]]] = {
    "fall": lambda ends: [ends[-1], *ends[1:]],
    "are negative": lambda ends: [-1, *ends[1:]],
    "lead behind the tokens": lambda ends: [*ends[:-1], 2**40],
    "stop before the last token": lambda ends: [*ends[:-1], ends[-2]],
    "are the largest number": lambda ends: [2**63 - 1] * len(ends),
}
COMMANDS: dict[str, list[str]] = {
    "inspect": ["inspect", "STORE", "--doc", "0"],
    "pack": ["pack", "STORE", "--seq-len", "8", "--method", "bestfit"],
    "export megatron": ["export", "STORE", "--to", "megatron", "--out", "OUT"],
    "export datatrove": ["export", "STORE", "--to", "datatrove", "--out", "OUT"],
    "export dolma": ["export", "STORE", "--to", "dolma", "--out", "OUT"],
    "export llmc": ["export", "STORE", "--to", "llmc", "--out", "OUT"],
    "export parquet": ["export", "STORE", "--to", "parquet", "--out", "OUT"],
    "export arrow": ["export", "STORE", "--to", "arrow", "--out", "OUT"],
    "export mds": ["export", "STORE", "--to", "mds", "--out", "OUT"],
    "export npy": ["export", "STORE", "--to", "npy", "--max-length", "8", "--out", "OUT"],
}
RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "of zeros": lambda data: bytes(len(data)),
    "cut in half": lambda data: data[: len(data) // 2],
    "a list": lambda data: b"[" * 5000,
    "with numbers beyond 64 bits": lambda data: data.replace(b'"docs": 50', b'"docs": 5' + b"0" * 40),
    "with negative numbers": lambda data: data.replace(b'"docs": ', b'"docs": -'),
    "of a later version": lambda data: data.replace(b'"format_version": 1', b'"format_version": 99'),
    "that leads outside": lambda data: data.replace(b'"shards/', b'"../../').replace(b'"tokenizer/', b'"../'),
}


def _first(scene: Scene, ending: str) -> Path:
    return sorted((scene.out / "shards").glob(f"*.{ending}"))[0]


def _ends(change: Callable[[list[int]], list[int]], command: list[str]) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        scene.built()
        path = _first(scene, "ends")
        path.write_bytes(np.array(change(np.fromfile(path, "<i8").tolist()), "<i8").tobytes())
        words = {"STORE": str(scene.out), "OUT": str(scene.path / "exported")}
        return scene.process(*(words.get(word, word) for word in command))

    return run


def _manifest(change: Callable[[bytes], bytes], command: list[str]) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        scene.built()
        path = scene.out / "manifest.json"
        path.write_bytes(change(path.read_bytes()))
        return scene.tokpress(*command, scene.out)

    return run


def _named(scene: Scene, outcome: Outcome) -> None:
    assert outcome.code == 1, outcome
    assert _first(scene, "ends").name in "".join(outcome.err.split()), outcome
    assert not (scene.path / "exported").exists()


_NOT_BELIEVED: Must = says("manifest.json", code=1)

CASES = [
    *(
        Case(f"ends that {damage}: {name}", _ends(change, command), _named)
        for damage, change in ENDS.items()
        for name, command in COMMANDS.items()
    ),
    *(
        Case(f"a manifest {name}: {verb}", _manifest(change, [verb]), _NOT_BELIEVED)
        for name, change in RECORDS.items()
        for verb in ("verify", "inspect")
    ),
]
