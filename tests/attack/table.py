"""One attack: a name, how it is made, and what must come of it.

Of every attack: no traceback reaches the user, no signal ends the process, the bystander's files are as they were, and
nothing hangs. What more must come of it is said by a check: `refused`, `sound`, `says`, or a function of the topic.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokpress.store.verify import verify_store

if TYPE_CHECKING:
    from attack.scene import Scene

EXIT_CODES = (0, 1, 2, 3, 130)  # that `tokpress --help` names


@dataclass(frozen=True)
class Outcome:
    """What a user sees: the exit code and the two streams."""

    code: int
    out: str = ""
    err: str = ""


Must = Callable[["Scene", Outcome], None]


@dataclass(frozen=True)
class Case:
    name: str  # as a sentence would say it; unique in its topic
    make: Callable[[Scene], Outcome]
    must: Must

    def run(self, scene: Scene) -> None:
        outcome = self.make(scene)
        assert "Traceback" not in outcome.err, outcome.err
        assert outcome.code in EXIT_CODES, (outcome.code, outcome.err)
        self.must(scene, outcome)
        scene.check_bystander()


def refused(*words: str, code: int | None = None) -> Must:
    """An error that has these words, in one way or another: `a|b`; and no finished store."""

    def check(scene: Scene, outcome: Outcome) -> None:
        assert outcome.code != 0, outcome
        assert code is None or outcome.code == code, outcome
        _said(outcome.err, words)
        assert not os.path.exists(scene.out / "manifest.json")  # noqa: PTH110 - some names cannot be looked for

    return check


def says(*words: str, code: int | None = 0) -> Must:
    """It ends with this code (None: with an error), and what it says has these words."""

    def check(scene: Scene, outcome: Outcome) -> None:
        assert outcome.code == code if code is not None else outcome.code, outcome
        _said(outcome.err + outcome.out, words)

    return check


def sound(docs: int | None = None) -> Must:
    """A finished store that `verify` finds nothing wrong with."""

    def check(scene: Scene, outcome: Outcome) -> None:
        assert outcome.code == 0, outcome
        report = verify_store(scene.out)
        assert report.ok, report
        assert docs is None or scene.store.num_docs == docs

    return check


def both(*checks: Must) -> Must:
    def check(scene: Scene, outcome: Outcome) -> None:
        for one in checks:
            one(scene, outcome)

    return check


def _said(text: str, words: tuple[str, ...]) -> None:
    plain = " ".join(text.split())
    for word in words:
        assert any(way in plain for way in word.split("|")), (word, text)
