"""Sample number -> which sequence of which source: the one global order that all ranks, batch sizes and threads share.

In: sources, seed, shuffle, mixture. Out: for samples [start, stop) the source and sequence of each, and a digest of them.
Only the sample's number counts, so any rank can enter anywhere. Samples are worked out some thousands at a time and kept
for the steps that follow: a NumPy call costs the same for a batch as for many of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.loader.base import Order
from tokpress.loader.mixture import Mixture
from tokpress.loader.order import Shuffle, make_order
from tokpress.loader.permutation import Words, derive_keys, mix

CHUNK_SAMPLES = 8192
_KEPT_CHUNKS = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """What some consecutive samples are."""

    sources: npt.NDArray[np.intp]  # index of the source
    sequences: Int64s  # in that source's packing
    digests: Words  # of each sample: its number, source and sequence

    def __getitem__(self, part: slice | Int64s) -> Assignment:
        return Assignment(self.sources[part], self.sequences[part], self.digests[part])

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
        self._counts = np.array([sizes[name] for name in self._names], np.int64)
        self._name_keys = np.array([derive_keys("source", name, count=1)[0] for name in self._names], np.uint64)
        self._chunks: OrderedDict[int, Assignment] = OrderedDict()
        self._lock = threading.Lock()
        self.order = lru_cache(maxsize=4 * len(sizes))(self._make_order)

    def _make_order(self, name: str, epoch: int) -> Order:
        n, block_samples = self.sizes[name], self._block_samples[name]
        return make_order(self._shuffle, n, self._seed, name, epoch, block_samples=block_samples)

    def samples(self, start: int, stop: int) -> Assignment:
        """What samples [start, stop) are; `stop` is not beyond the end."""
        first, last = start // CHUNK_SAMPLES, max(stop - 1, start) // CHUNK_SAMPLES
        parts = [
            self._chunk(chunk)[max(start - chunk * CHUNK_SAMPLES, 0) : max(stop - chunk * CHUNK_SAMPLES, 0)]
            for chunk in range(first, last + 1)
        ]
        if len(parts) == 1:
            return parts[0]
        return Assignment(
            np.concatenate([part.sources for part in parts]),
            np.concatenate([part.sequences for part in parts]),
            np.concatenate([part.digests for part in parts]),
        )

    def _chunk(self, chunk: int) -> Assignment:
        with self._lock:  # two threads that want the same chunk: one works it out
            if chunk not in self._chunks:
                self._chunks[chunk] = self._assign(chunk * CHUNK_SAMPLES)
                while len(self._chunks) > _KEPT_CHUNKS:
                    self._chunks.popitem(last=False)
            return self._chunks[chunk]

    def _assign(self, start: int) -> Assignment:
        stop = start + CHUNK_SAMPLES if self.total is None else min(start + CHUNK_SAMPLES, self.total)
        samples = np.arange(start, stop, dtype=np.int64)
        sources, draws = self.mixture.draws(samples)
        epochs, positions = np.divmod(draws, self._counts[sources])
        sequences = np.empty(len(samples), np.int64)
        for source in np.unique(sources).tolist():
            of_source = sources == source
            for epoch in np.unique(epochs[of_source]).tolist():
                here = of_source & (epochs == epoch)
                sequences[here] = self.order(self._names[source], epoch).samples(positions[here])
        digests = mix(mix(samples.astype(np.uint64)) ^ self._name_keys[sources])
        return Assignment(sources, sequences, mix(digests ^ sequences.astype(np.uint64)))

    def sample_of(self, name: str, sequence: int, epoch: int) -> int | None:
        """The sample that is this sequence of a source, in that source's `epoch`; None: it is not reached."""
        if not 0 <= sequence < self.sizes[name] or epoch < 0:
            return None
        position = int(self.order(name, epoch).positions(np.array([sequence], np.int64))[0])
        return self.mixture.sample_of(name, epoch * self.sizes[name] + position)
