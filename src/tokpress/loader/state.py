"""Where a loader is, as a small dictionary of numbers and strings.

In: what was delivered. Out: a record that is the same on all ranks and from which any loader over the same data goes on
at once, with whatever batch size, number of ranks and threads. It speaks of samples in the global order, which depends on
none of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from tokpress.errors import UsageError
from tokpress.hashing import Words
from tokpress.records import Count

VERSION = 1
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class SourceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens, cut how: a sequence's number means something only together with these."""

    fingerprint: str  # of the store
    split: str
    packing: str
    seq_len: Count
    sequences: Count


class StageState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    start: Count
    weights: dict[str, Count]


class BatchState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From `sample` (and `step`) on, a step of all ranks together has `size` samples."""

    sample: Count
    step: Count
    size: Annotated[int, msgspec.Meta(ge=1, le=2**62)]

    def first_sample(self, step: int) -> int:
        """Where a step begins."""
        return self.sample + (step - self.step) * self.size


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = VERSION
    samples: Count  # delivered to the training loop, by all ranks; what was only prefetched does not count
    step: Count  # of all ranks together; they deliver one batch each
    digest: Annotated[
        str, msgspec.Meta(pattern="^[0-9a-f]{16}$")
    ]  # over all samples delivered, 16 hexadecimal digits; equal histories have equal ones
    seed: int
    shuffle: str
    sources: dict[str, SourceState]
    stages: list[StageState]  # the mixture, with the points at which a source is used up
    batches: list[BatchState]  # how steps and samples belong together: a line for each change of the batch size

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def read_state(values: Mapping[str, Any]) -> State:
    if not isinstance(values, Mapping):
        raise UsageError(
            f"a {type(values).__name__} is not a loader's state. Give load_state_dict what state_dict returned."
        )
    if values.get("version") != VERSION:
        raise UsageError(
            f"this is not the state of a tokpress loader of version {VERSION}: its version is {values.get('version')!r}. "
            "Give load_state_dict what state_dict returned."
        )
    try:
        state = msgspec.convert(dict(values), State)
        unknown = {name for stage in state.stages for name in stage.weights} - state.sources.keys()
        if unknown:
            raise msgspec.ValidationError(f"it mixes {sorted(unknown)[0]!r}, which is no source of it")
        return state
    except (msgspec.ValidationError, TypeError) as error:  # a key that is no text
        raise UsageError(
            f"this is not a loader's state: {error}. Give load_state_dict what state_dict returned."
        ) from None


def check_same_history(saved: State, ours: State) -> None:
    """Refuses a state if this loader would have delivered other samples up to there. The future may differ."""
    for name in ("seed", "shuffle"):
        if (then := getattr(saved, name)) != (now := getattr(ours, name)):
            raise UsageError(
                f"the state was saved with {name} {then!r}, this loader has {now!r}: its order is another one. "
                f"Make the loader with {name} {then!r}."
            )
    for name in {name for stage in _history(saved, saved.samples) for name in stage.weights}:
        _check_source(name, saved.sources[name], ours.sources.get(name))
    then_stages, now_stages = _history(saved, saved.samples), _history(ours, saved.samples)
    if then_stages != now_stages:
        raise UsageError(
            f"up to sample {saved.samples:,} the state's mixture was {_shown(then_stages)}, this loader's is "
            f"{_shown(now_stages)}. Keep the old weights and max_epochs; for new ones from here on add "
            f"stages={{{saved.samples}: ...}}."
        )


def _check_source(name: str, then: SourceState, now: SourceState | None) -> None:
    if now is None:
        raise UsageError(f"the state has a source {name!r}, which this loader does not have. Give it that source, too.")
    for field in SourceState.__struct_fields__:
        if getattr(then, field) != getattr(now, field):
            raise UsageError(
                f"source {name!r} is not what it was: its {field} was {getattr(then, field)}, now {getattr(now, field)}. "
                "Open the same store with the same options; whether it is whole says: tokpress verify STORE"
            )


def _history(state: State, samples: int) -> list[StageState]:
    """The stages that delivered something."""
    return [stage for stage in state.stages if stage.start < samples]


def _shown(stages: list[StageState]) -> str:
    return "; ".join(f"from {stage.start:,}: {stage.weights}" for stage in stages)


def digests_of(samples: Words, steps: int) -> list[int]:
    """Of steps, from those of their samples: sums, so that it does not matter how samples were batched. Each summand
    knows its sample's number."""
    sums: list[int] = samples.reshape(steps, -1).sum(axis=1, dtype=np.uint64).tolist()
    return sums


def add_digests(digest: int, more: int) -> int:
    return (digest + more) % 2**64
