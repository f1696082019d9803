"""Sample number -> which sequence of which source: the one global order that all ranks, batch sizes and threads share.

In: sources, seed, shuffle, mixture. Out: for samples [start, stop) the source and sequence of each, and a digest of them.
Only the sample's number counts, so any rank can enter anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.hashing import Words, mix
from tokpress.loader.order.mixture import Mixture
from tokpress.loader.order.permutation import derive_keys
from tokpress.loader.order.shuffle import Order, Shuffle, make_order


@dataclass(frozen=True, slots=True)
class Samples:
    """What some consecutive samples are."""

    sources: npt.NDArray[np.intp]  # index of the source
    sequences: Int64s  # in that source's packing
    digests: Words  # of each sample: its number, source and sequence

    def __getitem__(self, part: slice | Int64s) -> Samples:
        return Samples(self.sources[part], self.sequences[part], self.digests[part])

    def __len__(self) -> int:
        return len(self.sequences)


class Schedule:
    """The global order. `total` is None if it never ends."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        mixture: Mixture,
        *,
        seed: int,
        shuffle: Shuffle,
        block_samples: Mapping[str, int],
    ) -> None:
        self.sizes = dict(sizes)
        self.mixture = mixture
        self.total = mixture.total
        self._names = mixture.names
        self._seed = seed
        self._shuffle = shuffle
        self._block_samples = block_samples
        self._name_keys = np.array([derive_keys("source", name, count=1)[0] for name in self._names], np.uint64)
        self.order = lru_cache(maxsize=4 * len(sizes))(self._make_order)

    def _make_order(self, name: str, epoch: int) -> Order:
        n, block_samples = self.sizes[name], self._block_samples[name]
        return make_order(self._shuffle, n, self._seed, name, epoch, block_samples=block_samples)

    def samples(self, start: int, stop: int) -> Samples:
        """What samples [start, stop) are; `stop` is not beyond the end."""
        samples = np.arange(start, stop, dtype=np.int64)
        sources, draws = self.mixture.draws(samples)
        sequences = np.empty(len(samples), np.int64)
        for source in np.flatnonzero(np.bincount(sources)).tolist():
            here = np.flatnonzero(sources == source)
            of_source = draws[here]  # they rise
            name, size = self._names[source], self.sizes[self._names[source]]
            for epoch in range(int(of_source[0]) // size, int(of_source[-1]) // size + 1):
                first, last = of_source.searchsorted((epoch * size, (epoch + 1) * size)).tolist()
                positions = of_source[first:last] - epoch * size
                sequences[here[first:last]] = self.order(name, epoch).samples(positions)
        digests = mix(mix(samples.astype(np.uint64)) ^ self._name_keys[sources])
        return Samples(sources, sequences, mix(digests ^ sequences.astype(np.uint64)))

    def sample_of(self, name: str, sequence: int, epoch: int) -> int | None:
        """The sample that is this sequence of a source, in that source's `epoch`; None: it is not reached."""
        if not 0 <= sequence < self.sizes[name] or epoch < 0:
            return None
        position = int(self.order(name, epoch).positions(np.array([sequence], np.int64))[0])
        return self.mixture.sample_of(name, epoch * self.sizes[name] + position)
