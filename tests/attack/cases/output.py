"""Places that a store cannot be written to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from attack.scene import Scene
from attack.table import Case, Outcome, refused


def _out_is(make: Callable[[Scene], None]) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        make(scene)
        return scene.build(scene.corpus(), process=True)

    return run


def _file(scene: Scene) -> None:
    scene.out.write_text("a file")


def _foreign(scene: Scene) -> None:
    scene.out.mkdir()
    (scene.out / "thesis.txt").write_text("a thesis")


def _dangling(scene: Scene) -> None:
    scene.out.symlink_to(scene.path / "nowhere")


def _to_itself(scene: Scene) -> None:
    scene.out.symlink_to(scene.out)


def _pipe(scene: Scene) -> None:
    os.mkfifo(scene.out)


def _below_a_file(scene: Scene) -> None:
    scene.out.write_text("a file")
    scene.out = scene.out / "below"


def _deep_below_a_file(scene: Scene) -> None:
    scene.out.write_text("a file")
    scene.out = scene.out / "deep" / "below"


def _below_a_dangling_link(scene: Scene) -> None:
    _dangling(scene)
    scene.out = scene.out / "below"


def _in_proc(scene: Scene) -> None:
    scene.out = Path("/proc/tokpress/store")


def _below_a_device(scene: Scene) -> None:
    scene.out = Path("/dev/null/store")


def _too_long(scene: Scene) -> None:
    scene.out = scene.path / ("x" * 300)


_PLACES = [
    ("below a file", _below_a_file, "is a file"),
    ("deep below a file", _deep_below_a_file, "is a file"),
    ("below a link to nowhere", _below_a_dangling_link, "link to nowhere"),
    ("in /proc", _in_proc, "no directory can be made there"),
    ("below a device", _below_a_device, "is a file|Not a directory"),
    ("a name that is too long", _too_long, "too long"),
]


def _verb(place: Callable[[Scene], None], *words: object) -> Callable[[Scene], Outcome]:
    """Another verb that writes a directory."""

    def run(scene: Scene) -> Outcome:
        given, exported = scene.path / "given", scene.path / "exported"
        scene.built(out=given)
        scene.tokpress("export", given, "--to", "nanogpt", "--out", exported)
        place(scene)
        paths = {"STORE": given, "TOKENS": exported / "train.bin"}
        return scene.process(*(paths.get(str(word), word) for word in words), "--out", scene.out)

    return run


_VERBS: dict[str, tuple[object, ...]] = {
    "export": ("export", "STORE", "--to", "nanogpt"),
    "import": ("import", "TOKENS", "--from", "nanogpt", "--tokenizer", "bytes"),
}


def _gone(verb: str) -> Callable[[Scene], Outcome]:
    """The working directory is no more."""

    def run(scene: Scene) -> Outcome:
        corpus, given = scene.corpus(), scene.path / "given"
        scene.built(out=given)
        scene.tokpress("export", given, "--to", "nanogpt", "--out", scene.path / "exported")
        words = {
            "build": f"build {corpus} --tokenizer bytes --out store",
            "import": f"import {scene.path}/exported/train.bin --from nanogpt --tokenizer bytes --out store",
            "export": f"export {given} --to nanogpt --out store",
            "pack": "pack store --seq-len 64",
            "inspect": "inspect store",
        }[verb]
        (scene.path / "gone").mkdir()
        script = f"cd gone && rmdir ../gone && exec {sys.executable} -P -m tokpress {words}"
        return scene.shell(["sh", "-c", script])

    return run


CASES = [
    Case("a file", _out_is(_file), refused("is a file", code=2)),
    Case("somebody's directory", _out_is(_foreign), refused("not empty and not a store", code=2)),
    Case("a link to nowhere", _out_is(_dangling), refused("link to nowhere", code=2)),
    Case("a link to itself", _out_is(_to_itself), refused("link")),
    Case("a pipe", _out_is(_pipe), refused("is a file|not a directory")),
    *(Case(name, _out_is(place), refused(why)) for name, place, why in _PLACES),
    *(
        Case(f"{verb} {name}", _verb(place, *words), refused(why))
        for verb, words in _VERBS.items()
        for name, place, why in _PLACES
    ),
    *(
        Case(
            f"{verb} in a directory that was removed", _gone(verb), refused("no directory can|No such file|no store at")
        )
        for verb in ("build", "import", "export", "pack", "inspect")
    ),
]
