"""Documents that the tokenizer does not survive, and a machine that is not what one expects."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

from crash.poison import poisoned

from attack.scene import Scene
from attack.table import Case, Must, Outcome, both, refused, says, sound

KINDS = {
    "segfault": "crashed-tokenizer",
    "abort": "crashed-tokenizer",
    "exit": "crashed-tokenizer",
    "hang": "hung-tokenizer",
    "panic": "crashed-tokenizer",
    "refused": "cannot-encode",
}
PLACES = {"first": 0, "last": 19, "middle": 9}
_C_LOCALE: Any = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _poison(kind: str, at: int, *options: str, pipe: bool = False) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        texts = [f"!!{kind}" if i == at else f"document {i}" for i in range(20)]
        data = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        corpus = scene.path / "corpus.jsonl"
        corpus.write_text(data)
        words = [*("-" if pipe else corpus,), "--doc-timeout", "2", "--max-rejects", "100%", *options]
        return scene.build(*words, process=True, stdin=data.encode(), **poisoned(scene.path))

    return run


def _alone(reason: str) -> Must:
    def check(scene: Scene, outcome: Outcome) -> None:
        sound(19)(scene, outcome)
        assert [reject.reason for reject in scene.store.rejects()] == [reason]

    return check


def _only_projected(scene: Scene, outcome: Outcome) -> None:
    """What the run would take, told from the documents that are good; and nothing was written."""
    says("plan 1 file", "tokens", "1 worker about")(scene, outcome)
    assert not scene.out.exists()


def _closed(what: str, *inputs: str) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        scene.corpus()
        command = [sys.executable, "-m", "tokpress", "build", *inputs, "--tokenizer", "bytes", "--out", str(scene.out)]
        return scene.shell(["sh", "-c", f"{shlex.join(command)} {what}"])

    return run


def _ascii(name: str, *verb: str) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        source = os.fsencode(scene.path) + b"/" + name.encode() + b".jsonl"
        with open(source, "w", encoding="utf-8") as file:  # noqa: PTH123 - the name is bytes
            file.write(json.dumps({"text": "grüße 你好"}, ensure_ascii=False) + "\n")
        built = scene.build(os.fsdecode(source), process=True, **_C_LOCALE)
        return scene.process(*verb, scene.out, **_C_LOCALE) if verb else built

    return run


CASES = [
    *(
        Case(f"{kind} in the {name} document", _poison(kind, at), _alone(reason))
        for kind, reason in KINDS.items()
        for name, at in PLACES.items()
    ),
    *(
        Case(f"{kind} with one worker", _poison(kind, 9, "--workers", "1"), _alone(reason))
        for kind, reason in KINDS.items()
    ),
    *(
        Case(f"{kind} in a pipe", _poison(kind, 9, pipe=True), refused("standard input has ended", code=1))
        for kind in ("segfault", "hang", "panic")
    ),
    *(
        Case(f"{kind} in a dry run, the {name} document", _poison(kind, at, "--dry-run"), _only_projected)
        for kind in KINDS
        for name, at in PLACES.items()
    ),
    Case("a pipe in a dry run", _poison("hang", 0, "--dry-run", pipe=True), refused("standard input", code=2)),
    Case("no standard input", _closed("<&-", "corpus.jsonl"), sound(50)),
    Case("no standard input, which is to be read", _closed("<&-", "-"), refused("no standard input", code=2)),
    Case("no standard output", _closed(">&-", "corpus.jsonl"), sound(50)),
    Case("no standard input or output", _closed("<&- >&-", "corpus.jsonl"), sound(50)),
    Case("a name beyond ASCII in the C locale", _ascii("grüße"), refused("PYTHONUTF8=1", code=2)),
    Case("text beyond ASCII in the C locale", _ascii("plain"), sound(1)),
    Case("text beyond ASCII in the C locale, inspected", _ascii("plain", "inspect", "--doc", "0"), both(sound(1))),
    Case(
        "text beyond ASCII in the C locale, verified",
        _ascii("plain", "verify"),
        says("sound|no problem|ok|whole|0 problems"),
    ),
]
