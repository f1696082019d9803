"""Samples -> what has to be copied for them, and where to.

In: what samples are. Out: a `Bundle` of many steps, cut into the few that are made together. To plan is to work out some
numbers a sample, and a NumPy call costs the same for a batch as for thousands of them; to make is to copy megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokpress.loader.dataset import Placed, PretokenizedDataset, place
from tokpress.loader.order.schedule import Samples

PLAN_SAMPLES = 8192


class Bundle(NamedTuple):
    """Steps of equal size that follow each other, of which all is known but the tokens."""

    stops: range  # up to which sample a step goes
    digests: list[int]  # of a step's samples on all ranks
    rows: int  # of this rank, in all steps together
    placed: list[Placed]

    def cut(self, most: int) -> Iterator[Bundle]:
        """The same, at most so many steps at a time."""
        steps = len(self.stops)
        if steps <= most:
            yield self
            return
        bounds = np.array([*range(0, steps, most), steps])
        each = self.rows // steps
        placed = zip(*(part.cut(bounds * each) for part in self.placed), strict=True)
        for (first, last), parts in zip(pairwise(bounds.tolist()), placed, strict=True):
            yield Bundle(self.stops[first:last], self.digests[first:last], (last - first) * each, list(parts))


def place_samples(sources: Sequence[PretokenizedDataset], samples: Samples) -> list[Placed]:
    """A sample in each row."""
    if len(sources) == 1:
        return [place(sources[0], samples.sequences)]
    placed = []
    for index in np.unique(samples.sources).tolist():
        rows = np.flatnonzero(samples.sources == index)
        placed.append(place(sources[index], samples.sequences[rows], rows))
    return placed
