"""States of loaders that no loader wrote, and numbers of sequences that there are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tokpress
from attack.scene import Scene
from attack.table import Case, Must, Outcome, says

NO_STATES: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "a text": "state",
    "bytes": b"state",
    "a list": [],
    "an empty dictionary": {},
    "a version alone": {"version": 1, "live": 1},
    "a key that is a number": {"version": 1, "live": 1, 3: 4},
}
WRONG: dict[str, Any] = {
    "nothing": None,
    "negative": -1,
    "beyond 64 bits": 2**70,
    "a text": "x",
    "a list of nothing": [None],
    "a dictionary of nothing": {"a": None},
    "not a number": float("nan"),
}
NO_NUMBERS: dict[str, Any] = {
    "a fraction": 1.5,
    "a text": "one",
    "nothing": None,
    "a list in a list of texts": [["a"]],
    "beyond the end": 10**9,
    "before the start": -(10**9),
    "beyond 64 bits": 2**70,
}


def _loader(scene: Scene) -> Any:
    data = tokpress.PretokenizedDataset(scene.built(), seq_len=8, output="numpy")
    return tokpress.Loader(data, batch_size=2)


def _live(scene: Scene) -> Any:
    return tokpress.LiveDataset(scene.corpus(), tokenizer="bytes", seq_len=8, batch_size=2)


def _whole(make: Callable[[Scene], Any], state: Any) -> Callable[[Scene], Outcome]:
    return lambda scene: scene.call(lambda: make(scene).load_state_dict(state))


def _field(make: Callable[[Scene], Any], field: str, value: Any) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        loader = make(scene)
        state = loader.state_dict() | {field: value}
        return scene.call(lambda: loader.load_state_dict(state))

    return run


def _asked(how: Callable[[Any, Any], object], number: Any) -> Callable[[Scene], Outcome]:
    """A mistake of the caller's that Python has a name for: an IndexError or a TypeError, in our words."""

    def run(scene: Scene) -> Outcome:
        data = tokpress.PretokenizedDataset(scene.built(), seq_len=8, output="numpy")
        try:
            return Outcome(0, out=repr(how(data, number)))
        except (IndexError, TypeError) as error:
            return Outcome(2, err=str(error))

    return run


_REFUSED: Must = says("Give|Open the same store|Make the loader|Keep the old weights|Raise max_epochs", code=2)
_LOADER_FIELDS = ("version", "samples", "step", "digest", "seed", "shuffle", "sources", "stages", "batches")
_LIVE_FIELDS = ("live", "samples", "step", "place", "inputs", "tokenizer", "options")

CASES = [
    *(Case(f"a loader is given {name}", _whole(_loader, state), _REFUSED) for name, state in NO_STATES.items()),
    *(Case(f"a live data set is given {name}", _whole(_live, state), _REFUSED) for name, state in NO_STATES.items()),
    *(
        Case(f"a loader's {field} is {name}", _field(_loader, field, value), _REFUSED)
        for field in _LOADER_FIELDS
        for name, value in WRONG.items()
    ),
    *(
        Case(f"a live data set's {field} is {name}", _field(_live, field, value), _REFUSED)
        for field in _LIVE_FIELDS
        for name, value in WRONG.items()
    ),
    *(
        Case(f"a batch of sequence {name}", _asked(lambda data, n: data.batch([n]), n), says("sequence", code=2))
        for name, n in NO_NUMBERS.items()
    ),
    *(
        Case(f"sequence {name}", _asked(lambda data, n: data[n], n), says("sequence", code=2))
        for name, n in NO_NUMBERS.items()
    ),
    *(
        Case(f"document {name}", _asked(lambda data, n: data.store.doc(n), n), says("document", code=2))
        for name, n in NO_NUMBERS.items()
    ),
    Case("a batch of the last sequence, from the end", _asked(lambda data, n: data.batch([n]), -1), says("input_ids")),
]
