"""Several sources as one stream of samples, in exact proportions, entered anywhere.

In: how many samples each source has, integer weights, stages. Out: sample number -> (source, which draw from it it is)
and back, in O(1). Within a stage the sources follow a fixed pattern as long as the sum of the weights: draw j of a source
of weight w stands where (2j + 1) / 2w says, between the draws of the others. So any prefix holds of each source what its
weight asks for, to within half a sample for each source in the mix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.errors import UsageError

MAX_PERIOD = 2**20  # samples after which a pattern repeats: some MB of tables

Weights = Mapping[str, int | float]
Stages = Mapping[int, Weights]  # from this sample on, these weights


class Pattern:
    """The turn of each source, over and over."""

    def __init__(self, weights: list[int]) -> None:
        self.weights = np.array(weights, np.int64)
        self.period = sum(weights)
        sources = np.repeat(np.arange(len(weights)), weights)
        draws = np.concatenate([np.arange(weight) for weight in weights])
        # Quotients of numbers below 2^21: float64 tells unequal ones apart and makes equal ones equal.
        turns = (2 * draws + 1) / np.repeat(self.weights, weights)
        order = np.lexsort((sources, turns))
        self._sources = sources[order]
        self._draws = draws[order]
        self._places = [np.flatnonzero(self._sources == source) for source in range(len(weights))]

    def draws(self, offsets: Int64s) -> tuple[npt.NDArray[np.intp], Int64s]:
        """For each offset: whose turn it is, and how many times it had been that source's turn before."""
        rounds, place = np.divmod(offsets, self.period)
        sources = self._sources[place]
        return sources, rounds * self.weights[sources] + self._draws[place]

    def offsets(self, source: int, draws: Int64s) -> Int64s:
        """Where these draws of a source stand."""
        rounds, draw = np.divmod(draws, self.weights[source])
        offsets: Int64s = rounds * self.period + self._places[source][draw]
        return offsets

    def counts(self, offset: int) -> list[int]:
        """How often it was each source's turn before this offset."""
        rounds, place = divmod(offset, self.period)
        return [
            rounds * int(weight) + int(np.searchsorted(places, place))
            for weight, places in zip(self.weights, self._places, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Stage:
    """Samples [start, the next stage's start), in which neither the weights change nor a source ends."""

    start: int
    weights: dict[str, int]  # without common factor; only those with a share
    drawn: list[int]  # of every source, before `start`
    pattern: Pattern


class Mixture:
    """`total` samples (None: without end) of the sources in `names`."""

    def __init__(
        self, sizes: Mapping[str, int], weights: Weights, stages: Stages, max_epochs: Mapping[str, int | None]
    ) -> None:
        self.names = list(sizes)
        self._limits = {
            name: size * epochs for name, size in sizes.items() if (epochs := max_epochs.get(name)) is not None
        }
        self.stages: list[Stage] = []
        self.total: int | None = None
        wanted = sorted({0: weights, **stages}.items())
        for i, (start, mix) in enumerate(wanted):
            if self.total is not None:
                raise UsageError(
                    f"the stage from sample {start:,} on never comes: all sources before it are used up after "
                    f"{self.total:,} samples. Let it start there, or raise max_epochs."
                )
            stop = wanted[i + 1][0] if i + 1 < len(wanted) else None
            self._add_stage(start, stop, _whole_weights(mix, self.names))
        self._starts = np.array([stage.start for stage in self.stages], np.int64)

    def _add_stage(self, start: int, stop: int | None, weights: dict[str, int]) -> None:
        """Cuts a stage where a source is used up; the others go on in their proportions."""
        while stop is None or start < stop:
            drawn = self._drawn_before(start)
            left = {name: self._limits[name] - drawn[i] for i, name in enumerate(self.names) if name in self._limits}
            weights = _reduced({name: weight for name, weight in weights.items() if left.get(name, 1) > 0})
            if not weights:
                self.total = start
                return
            pattern = Pattern([weights.get(name, 0) for name in self.names])
            self.stages.append(Stage(start, weights, drawn, pattern))
            ends = [
                start + int(pattern.offsets(self.names.index(name), np.array([left[name]]))[0])
                for name in weights
                if name in left
            ]
            if not ends or (stop is not None and min(ends) >= stop):
                return
            start = min(ends)

    def _drawn_before(self, sample: int) -> list[int]:
        if not self.stages:
            return [0] * len(self.names)
        last = self.stages[-1]
        counts = last.pattern.counts(sample - last.start)
        return [before + count for before, count in zip(last.drawn, counts, strict=True)]

    def draws(self, samples: Int64s) -> tuple[npt.NDArray[np.intp], Int64s]:
        """For each sample: the index of its source in `names`, and which draw from that source it is."""
        sources = np.empty(len(samples), np.intp)
        draws = np.empty(len(samples), np.int64)
        where = np.searchsorted(self._starts, samples, "right") - 1
        for index in np.flatnonzero(np.bincount(where)).tolist():
            stage = self.stages[index]
            here = where == index
            sources[here], further = stage.pattern.draws(samples[here] - stage.start)
            draws[here] = further + np.array(stage.drawn, np.int64)[sources[here]]
        return sources, draws

    def sample_of(self, name: str, draw: int) -> int | None:
        """The sample at which a source is drawn from for the `draw`-th time (from 0); None: it never is."""
        source = self.names.index(name)
        for i, stage in enumerate(self.stages):
            if name not in stage.weights or draw < stage.drawn[source]:
                continue
            offset = int(stage.pattern.offsets(source, np.array([draw - stage.drawn[source]]))[0])
            stop = self.stages[i + 1].start if i + 1 < len(self.stages) else self.total
            if stop is None or stage.start + offset < stop:
                return stage.start + offset
        return None


def _whole_weights(weights: Weights, names: list[str]) -> dict[str, int]:
    """Weights as whole numbers without a common factor. 0.7 means seven tenths, not the nearest binary fraction."""
    for name, weight in weights.items():
        if name not in names:
            raise UsageError(
                f"there is a weight for {name!r}, but no such source. The sources are: {', '.join(names)}."
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise UsageError(f"the weight of {name!r} is {weight!r}; it must be a number, 0 or more.")
    exact = {name: Fraction(str(weight)) for name, weight in weights.items() if weight}
    if not exact:
        raise UsageError("all weights are 0. Give at least one source a share.")
    scale = math.lcm(*(weight.denominator for weight in exact.values()))
    whole = _reduced({name: int(exact[name] * scale) for name in names if name in exact})
    if sum(whole.values()) > MAX_PERIOD:
        raise UsageError(
            f"the weights {dict(weights)} are the proportions {' : '.join(map(str, whole.values()))}, which repeat only "
            f"after {sum(whole.values()):,} samples; at most {MAX_PERIOD:,} are possible. Round them."
        )
    return whole


def _reduced(weights: dict[str, int]) -> dict[str, int]:
    divisor = math.gcd(*weights.values()) if weights else 1
    return {name: weight // divisor for name, weight in weights.items()}
