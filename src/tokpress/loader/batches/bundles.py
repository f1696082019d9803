"""Samples -> what has to be copied for them, and where to.

In: what samples are. Out: a `Bundle` of many steps, cut into the few that are made together. To plan is to work out some
numbers a sample, and a NumPy call costs the same for a batch as for thousands of them; to make is to copy megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokpress.loader.batches.make import SourceRanges
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.order.schedule import Samples

PLAN_SAMPLES = 2**15


class Bundle(NamedTuple):
    """Steps of equal size that follow each other, of which all is known but the tokens."""

    stops: range  # up to which sample a step goes
    digests: list[int]  # of a step's samples on all ranks
    rows: int  # of this rank, in all steps together
    sources: list[SourceRanges]

    def cut(self, most: int) -> Iterator[Bundle]:
        """The same, at most so many steps at a time."""
        steps = len(self.stops)
        if steps <= most:
            yield self
            return
        bounds = np.array([*range(0, steps, most), steps])
        each = self.rows // steps
        sources = zip(*(source.cut(bounds * each) for source in self.sources), strict=True)
        for (first, last), cut in zip(pairwise(bounds.tolist()), sources, strict=True):
            yield Bundle(self.stops[first:last], self.digests[first:last], (last - first) * each, list(cut))


def ranges_of(datasets: Sequence[PretokenizedDataset], samples: Samples) -> list[SourceRanges]:
    """A sample in each row."""
    if len(datasets) == 1:
        return [datasets[0].ranges(samples.sequences)]
    found = []
    for index in np.unique(samples.sources).tolist():
        rows = np.flatnonzero(samples.sources == index)
        found.append(datasets[index].ranges(samples.sequences[rows], rows))
    return found
