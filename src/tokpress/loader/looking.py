"""What a loader says of itself: its steps, samples and sources, for people and for views.

In: a loader's order and history. Out: which samples a step has, without making a batch.
"""

from __future__ import annotations

from dataclasses import replace

from tokpress.drawing import facts, notebook
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.order.schedule import Schedule
from tokpress.loader.order.steps import Sharing, StepHistory


class Lookable:
    """The part of a `Loader` that only looks."""

    _sources: dict[str, PretokenizedDataset]
    _sharing: Sharing
    _history: StepHistory
    _schedule: Schedule
    _step: int

    def __repr__(self) -> str:
        sharing = self._sharing
        ranks = f", rank={sharing.rank} of {sharing.world_size}" if sharing.world_size > 1 else ""
        of = ", ".join(f"{name}={source!r}" for name, source in self._sources.items())
        return f"Loader({of}, batch_size={sharing.batch_size}{ranks}, step={self._step:,} of {self._steps_said})"

    def _repr_html_(self) -> str:
        sharing = self._sharing
        sources = [(name, f"{len(data):,} sequences of {data.store.url}") for name, data in self._sources.items()]
        seq_len = next(iter(self._sources.values())).seq_len
        rows: list[tuple[str, object]] = [
            ("step", f"{self._step:,} of {self._steps_said}"),
            ("batch", f"{sharing.batch_size:,} x {seq_len:,} tokens, rank {sharing.rank} of {sharing.world_size}"),
        ]
        return notebook("Loader", facts([*rows, *sources]))

    @property
    def _steps_said(self) -> str:
        return "no end" if self._history.steps is None else f"{self._history.steps:,}"

    @property
    def sources(self) -> dict[str, PretokenizedDataset]:
        """The datasets by their names in the mixture."""
        return self._sources

    @property
    def steps(self) -> int | None:
        """In all, those already made among them; None: without end."""
        return self._history.steps

    def shares(self, step: int) -> list[range]:
        """The samples of the global order that each rank takes in a step."""
        start, stop = self._history.samples_of(step)
        shares = (replace(self._sharing, rank=rank).own(stop - start) for rank in range(self._sharing.world_size))
        return [range(start + share.start, start + share.stop) for share in shares]

    def sequences(self, step: int, first: int = 0, count: int | None = None) -> list[tuple[str, int]]:
        """Samples of a step, of all ranks together, as (source, sequence in its packing)."""
        start, stop = self._history.samples_of(step)
        samples = self._schedule.samples(start, stop)
        names = [self._schedule.mixture.names[index] for index in samples.sources.tolist()]
        found = list(zip(names, samples.sequences.tolist(), strict=True))
        return found[first:] if count is None else found[first : first + count]
