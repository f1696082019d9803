"""The orders a loader can go in: straight, shuffled, or shuffled by blocks for disks that seek slowly.

In: the number of samples, a seed, the source's name and the epoch. Out: an `Order`; each epoch of each source has its
own. An order is a function, not a list: it costs nothing to make, nothing to keep and nothing to enter in the middle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.loader.order.permutation import Permutation

Shuffle = Literal["samples", "blocks", "none"]

WINDOW_BLOCKS = 16  # blocks that are read at the same time and mixed with each other


class Order(Protocol):
    """A way through the samples 0 .. n - 1 that meets each of them once."""

    n: int

    def samples(self, positions: Int64s) -> Int64s:
        """What stands at these positions."""
        ...

    def positions(self, samples: Int64s) -> Int64s:
        """Where these samples stand."""
        ...


def parse_shuffle(shuffle: bool | str) -> Shuffle:
    if isinstance(shuffle, bool):
        return "samples" if shuffle else "none"
    if shuffle == "blocks":
        return "blocks"
    raise UsageError(f'shuffle={shuffle!r} is not known. Give True, False or "blocks".')


def make_order(shuffle: Shuffle, n: int, *key: str | int, block_samples: int) -> Order:
    if shuffle == "none":
        return Straight(n)
    if shuffle == "samples":
        return Permutation(n, "samples", *key)
    return BlockOrder(n, *key, block_samples=block_samples)


class Straight:
    """As stored."""

    def __init__(self, n: int) -> None:
        self.n = n

    def samples(self, positions: Int64s) -> Int64s:
        return positions

    def positions(self, samples: Int64s) -> Int64s:
        return samples


class BlockOrder:
    """Blocks of neighbouring samples in shuffled order, then samples shuffled within a window of a few blocks.

    A disk then reads long runs instead of single samples. Blocks begin at another sample each time, going round at the end,
    so that no two samples are neighbours in a block for ever; the last block of the circle may be short and comes last.
    """

    def __init__(self, n: int, *key: str | int, block_samples: int, window_blocks: int = WINDOW_BLOCKS) -> None:
        self.n = n
        self._key = key
        self._block = block_samples
        self._window = block_samples * window_blocks
        self._blocks = Permutation(n // block_samples, "blocks", *key)
        self._in_blocks = n // block_samples * block_samples  # samples of whole blocks
        self._first = Permutation(n, "first", *key).sample(0) if n else 0
        self._within = lru_cache(maxsize=8)(self._make_within)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an order is not pickled: it is made again from its key")

    def samples(self, positions: Int64s) -> Int64s:
        return (self._from_slots(self._in_windows(positions, "samples")) + self._first) % max(self.n, 1)

    def positions(self, samples: Int64s) -> Int64s:
        return self._in_windows(self._to_slots((samples - self._first) % max(self.n, 1)), "positions")

    def _in_windows(self, slots: Int64s, direction: Literal["samples", "positions"]) -> Int64s:
        """Shuffles within each window, or back."""
        windows = slots // self._window
        out = np.empty_like(slots)
        for window in np.unique(windows).tolist():
            here = windows == window
            start = window * self._window
            out[here] = start + getattr(self._within(window), direction)(slots[here] - start)
        return out

    def _make_within(self, window: int) -> Permutation:
        size = min(self._window, self.n - window * self._window)
        return Permutation(size, "window", window, *self._key)

    def _from_slots(self, slots: Int64s) -> Int64s:
        whole = slots < self._in_blocks
        out = slots.copy()
        out[whole] = self._blocks.samples(slots[whole] // self._block) * self._block + slots[whole] % self._block
        return out

    def _to_slots(self, numbers: Int64s) -> Int64s:
        whole = numbers < self._in_blocks
        out = numbers.copy()
        out[whole] = self._blocks.positions(numbers[whole] // self._block) * self._block + numbers[whole] % self._block
        return out
