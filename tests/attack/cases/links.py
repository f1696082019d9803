"""Links planted where tokpress writes: nothing may be written, emptied or deleted through one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from attack.scene import Scene
from attack.table import Case, Must, Outcome, both, refused, says, sound
from tokpress.formats.target import METADATA, PARTIAL, ExportPlan
from tokpress.store.manifest import encode

Plant = Callable[[Scene, Path], None]
Run = Callable[[Scene], Outcome]


def to_file(scene: Scene, place: Path) -> None:
    _away(place)
    place.symlink_to(scene.bystander / "file")


def to_directory(scene: Scene, place: Path) -> None:
    _away(place)
    place.symlink_to(scene.bystander)


def hard(scene: Scene, place: Path) -> None:
    _away(place)
    os.link(scene.bystander / "file", place)


def to_nowhere(scene: Scene, place: Path) -> None:
    _away(place)
    place.symlink_to(scene.bystander / "new")


def _away(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _build(scene: Scene) -> Outcome:
    return scene.build(scene.path / "corpus.jsonl")


def _overwrite(scene: Scene) -> Outcome:
    return scene.build(scene.path / "corpus.jsonl", "--overwrite", "--max-length", 20, "--overlong", "truncate")


def _import(scene: Scene) -> Outcome:
    words = ["import", scene.path / "given" / "train.bin", "--from", "nanogpt", "--tokenizer", "bytes"]
    return scene.tokpress(*words, "--out", scene.out)


def _new(name: str, plant: Plant, run: Run) -> Run:
    """A link in a directory that is nothing else yet."""

    def make(scene: Scene) -> Outcome:
        scene.built(out=scene.path / "other")
        scene.tokpress("export", scene.path / "other", "--to", "nanogpt", "--out", scene.path / "given")
        plant(scene, scene.out / name)
        return run(scene)

    return make


def _unfinished(name: str, plant: Plant, run: Run) -> Run:
    """A link in a store that a run left before its end."""

    def make(scene: Scene) -> Outcome:
        scene.built()
        (scene.out / "manifest.json").unlink()
        plant(scene, scene.out / name)
        return run(scene)

    return make


def _finished(name: str, plant: Plant) -> Run:
    def make(scene: Scene) -> Outcome:
        scene.built()
        plant(scene, scene.out / name)
        return _overwrite(scene)

    return make


def _packed(name: str, plant: Plant) -> Run:
    def make(scene: Scene) -> Outcome:
        scene.built()
        plant(scene, scene.out / name)
        return scene.tokpress("pack", scene.out, "--seq-len", 64, "--method", "bestfit")

    return make


def _exported(name: str, plant: Plant, to: str, *options: object) -> Run:
    def make(scene: Scene) -> Outcome:
        scene.built()
        words = ["export", scene.out, "--to", to, "--out", scene.path / "exported", *options]
        scene.tokpress(*words)
        _begun_again(scene.path / "exported")
        plant(scene, scene.path / name)
        return scene.tokpress(*words)

    return make


def _begun_again(export: Path) -> None:
    """An export as it is when it has its plan, and not a file yet."""
    finished = (export / METADATA).read_bytes()
    shutil.rmtree(export)
    partial = export.with_name(export.name + PARTIAL)
    partial.mkdir()
    (partial / "plan.json").write_bytes(encode(msgspec.json.decode(finished, type=ExportPlan)))


def _out_is_a_link(scene: Scene) -> Outcome:
    """What a user named is followed: that is how large disks are reached."""
    (scene.path / "large").mkdir()
    scene.out.symlink_to(scene.path / "large")
    scene.corpus()
    _build(scene)
    return _overwrite(scene)


def _read_through(scene: Scene) -> Outcome:
    """Whoever only reads may: a cache of downloads is made of links."""
    scene.built()
    (scene.out / "shards").rename(scene.path / "elsewhere")
    (scene.out / "shards").symlink_to(scene.path / "elsewhere")
    return scene.tokpress("verify", scene.out)


def _no_export(scene: Scene, outcome: Outcome) -> None:
    assert outcome.code != 0
    assert not (scene.path / "exported" / "metadata.json").exists()


_LINK: Must = refused("link")
_NOT_EXPORTED = both(_no_export, says("link|not a dir", code=None))
_STORE = [("shards", to_directory), ("rejects", to_directory), ("tokenizer", to_directory), ("plan.json", to_file)]
_FILES = [
    ("shards/train-00000-000.bin", to_file),
    ("shards/train-00000-000.json", to_file),
    ("shards/train-00000-000.ends", to_nowhere),
    ("tokenizer/bytes.json", to_file),
    ("shards/.train-00000-000.bin.0123456789abcdef.tmp", to_file),
    ("quarantine", to_directory),
    ("packs", to_directory),
]
_LOCKS = [(".lock", to_file), (".lock", hard), (".lock", to_nowhere), (".lock", to_directory)]
_PARTIAL = [
    ("exported.partial", to_directory),
    ("exported.partial/files", to_directory),
    ("exported.partial/parts", to_directory),
    ("exported.partial/.lock", to_file),
    ("exported.partial/.lock", hard),
    ("exported", to_directory),
]


def _called(name: str, plant: Plant) -> str:
    return f"{name} {plant.__name__.replace('_', ' ')}"


CASES = [
    *(Case(f"new store: {_called(*at)}", _new(*at, _build), _LINK) for at in [*_STORE, *_LOCKS]),
    *(Case(f"import: {_called(*at)}", _new(*at, _import), _LINK) for at in [*_STORE, *_LOCKS]),
    *(Case(f"unfinished: {_called(*at)}", _unfinished(*at, _build), _LINK) for at in [*_STORE, *_FILES, *_LOCKS]),
    *(Case(f"overwrite unfinished: {_called(*at)}", _unfinished(*at, _overwrite), _LINK) for at in [*_STORE, *_FILES]),
    *(
        Case(f"overwrite: {_called(*at)}", _finished(*at), says("link", code=None))
        for at in [*_STORE, *_FILES, *_LOCKS]
    ),
    *(
        Case(f"pack: {_called(*at)}", _packed(*at), says("link", code=None))
        for at in [
            ("packs", to_directory),
            ("packs/train-bestfit-64", to_directory),
            ("packs/train-bestfit-64/.lock", to_file),
            ("packs/train-bestfit-64/.lock", hard),
        ]
    ),
    *(
        Case(f"export {to}: {_called(*at)}", _exported(*at, to, *options), _NOT_EXPORTED)
        for to, *options in [("nanogpt",), ("npy", "--seq-len", "64"), ("parquet",)]
        for at in _PARTIAL
    ),
    Case("--out itself is a link", _out_is_a_link, sound(50)),
    Case("reading through a link", _read_through, says("sound|ok|no damage")),
]  # fmt: skip
