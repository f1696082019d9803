"""A store inside the directory that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attack.scene import Scene
from attack.table import Case, Outcome, both, refused, says, sound

Runs = Callable[[Scene, Path], Outcome]


def _once(scene: Scene, data: Path) -> Outcome:
    return scene.build(data)


def _twice(scene: Scene, data: Path) -> Outcome:
    scene.build(data)
    return scene.build(data)


def _after_a_kill(scene: Scene, data: Path) -> Outcome:
    scene.build(data)
    (scene.out / "manifest.json").unlink()
    return scene.build(data)


def _overwritten(scene: Scene, data: Path) -> Outcome:
    scene.build(data)
    return scene.build(data, "--overwrite")


def _beside_an_export(scene: Scene, data: Path) -> Outcome:
    scene.built(out=data / "other")
    scene.tokpress("export", data / "other", "--to", "parquet", "--out", data / "exported")
    scene.tokpress("pack", data / "other", "--seq-len", 64, "--method", "bestfit")
    return scene.build(data)


def _by_glob(scene: Scene, data: Path) -> Outcome:
    scene.build(data)
    (scene.out / "manifest.json").unlink()
    return scene.build(f"{data}/**/*.json*")


def _inside(runs: Runs, place: str) -> Callable[[Scene], Outcome]:
    def make(scene: Scene) -> Outcome:
        scene.corpus(10, "data/a.jsonl")
        scene.corpus(10, "data/deep/b.jsonl")
        data = scene.path / "data"
        scene.out = data / place
        return runs(scene, data)

    return make


def _out_is_the_input(scene: Scene) -> Outcome:
    scene.corpus(10, "data/a.jsonl")
    scene.out = scene.path / "data"
    return scene.build(scene.path / "data", "--overwrite")


def _still_there(scene: Scene, outcome: Outcome) -> None:
    assert (scene.path / "data" / "a.jsonl").exists()


def _store_as_input(scene: Scene) -> Outcome:
    scene.built(out=scene.path / "other")
    return scene.build(scene.path / "other")


_RUNS: list[Runs] = [_once, _twice, _after_a_kill, _overwritten, _beside_an_export, _by_glob]

CASES = [
    *(
        Case(f"{runs.__name__.strip('_').replace('_', ' ')}, at {place}", _inside(runs, place), sound(20))
        for runs in _RUNS
        for place in ("tokens", "deep/tokens", "0first")
    ),
    Case("the input itself as --out", _out_is_the_input, both(refused("not a store"), _still_there)),
    Case("a store as the input", _store_as_input, says("was written by tokpress", code=2)),
]
