"""Places that a store cannot be written to."""

from __future__ import annotations

import os
from collections.abc import Callable

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


CASES = [
    Case("a file", _out_is(_file), refused("is a file", code=2)),
    Case("somebody's directory", _out_is(_foreign), refused("not empty and not a store", code=2)),
    Case("a link to nowhere", _out_is(_dangling), refused("link to nowhere", code=2)),
    Case("a link to itself", _out_is(_to_itself), refused("link")),
    Case("a pipe", _out_is(_pipe), refused("is a file|not a directory")),
]
