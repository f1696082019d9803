"""Tokenizers with absurd ids, without ids, or that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from attack.scene import Scene
from attack.table import Case, Outcome, refused

Change = Callable[[dict[str, Any]], object]
_WORDS: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"document": 0, "of": 1}, "unk_token": "[UNK]"},
}


def _vocab(i: object) -> Change:
    return lambda words: words["model"]["vocab"].update(absurd=i)


def _added(i: object) -> Change:
    return lambda words: words["added_tokens"].append({"id": i, "content": "<x>", "special": True})


def _build(data: Callable[[], bytes]) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        path = scene.path / "tokenizer.json"
        path.write_bytes(data())
        words = ["build", scene.corpus(), "--tokenizer", path, "--out", scene.out, "--no-eos"]
        return scene.process(*words, "--memory", "1GB")

    return run


def _changed(change: Change) -> Callable[[], bytes]:
    def data() -> bytes:
        words = json.loads(json.dumps(_WORDS))
        change(words)
        return json.dumps(words).encode()

    return data


_NO_IDS: list[object] = [-1, "1", None, 1.5, []]
_IDS = [2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 10**30]
_NONE = {
    "nothing": b"",
    "an open bracket": b"{",
    "brackets in brackets": b'{"model":' * 3000,
    "a list": b"[]",
    "zeros": bytes(1000),
    "no model": b'{"version": "1.0"}',
    "an empty vocabulary": json.dumps(
        _WORDS | {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}
    ).encode(),
}

CASES = [
    *(Case(f"a token with id {i}", _build(_changed(_vocab(i))), refused("tokenizer", code=2)) for i in _IDS),
    *(Case(f"an added token with id {i}", _build(_changed(_added(i))), refused("tokenizer", code=2)) for i in _IDS),
    *(Case(f"a token whose id is {i!r}", _build(_changed(_vocab(i))), refused(code=2)) for i in _NO_IDS),
    *(Case(f"a file of {name}", _build(partial(bytes, data)), refused(code=2)) for name, data in _NONE.items()),
    Case(
        "a word model without an unknown token",
        _build(_changed(lambda words: words["model"].update(unk_token="missing"))),
        refused("cannot-encode", code=3),
    ),
]
