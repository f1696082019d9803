"""Where a live data set is, as a small dictionary of numbers and strings.

In: what was delivered. Out: a record that is the same on all ranks, and from which any `LiveDataset` over the same inputs
goes on with the very next sequence, on another number of ranks or with another batch size, too. Only the document in which
that sequence begins is encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tokpress.errors import UsageError
from tokpress.live.window import Place
from tokpress.records import Count, Input

VERSION = 1


class LiveState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    live: int = VERSION
    samples: Count  # delivered, by all ranks together; what was only prefetched does not count
    step: Count
    place: Place  # where the next sample begins
    inputs: str  # digest of their names and sizes: they may lie in another directory
    tokenizer: str  # fingerprint
    options: dict[str, Any]  # all that decides which tokens there are and how they are cut

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def read_state(values: Mapping[str, Any]) -> LiveState:
    if not isinstance(values, Mapping):
        raise UsageError(
            f"a {type(values).__name__} is not the state of a LiveDataset. Give load_state_dict what state_dict returned."
        )
    try:
        if values.get("live") != VERSION:
            raise msgspec.ValidationError(f"its version is {values.get('live')!r}, not {VERSION}")
        return msgspec.convert(dict(values), LiveState)
    except (msgspec.ValidationError, TypeError) as error:  # a key that is no text
        raise UsageError(
            f"this is not the state of a LiveDataset: {error}. Give load_state_dict what state_dict returned."
        ) from None


def check_same_stream(saved: LiveState, ours: LiveState) -> None:
    """Refuses a state of other tokens."""
    if saved.tokenizer != ours.tokenizer:
        raise UsageError("the state was saved with another tokenizer. Give the one that it was saved with.")
    for name in saved.options.keys() | ours.options.keys():
        then, now = saved.options.get(name), ours.options.get(name)
        if then != now:
            raise UsageError(f"the state was saved with {name}={then!r}, here it is {now!r}. Give {name}={then!r}.")
    if saved.inputs != ours.inputs:
        raise UsageError(
            "the state was saved with other inputs: names, sizes or order of the files differ. Give the same ones again."
        )


def inputs_digest(inputs: Sequence[Input]) -> str:
    named = [(Path(source.path).name, source.format, source.compression, source.size) for source in inputs]
    return sha256(msgspec.json.encode(named)).hexdigest()[:16]
