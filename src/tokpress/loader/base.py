"""The contract of an order: which sample stands at a position, and at which position a sample stands.

In: positions or samples, as arrays. Out: the other ones. An order is a function, not a list: it costs nothing to make,
nothing to keep and nothing to enter in the middle.
"""

from __future__ import annotations

from typing import Protocol

from tokpress.batches import Int64s


class Order(Protocol):
    """A way through the samples 0 .. n - 1 that meets each of them once."""

    n: int

    def samples(self, positions: Int64s) -> Int64s:
        """What stands at these positions."""
        ...

    def positions(self, samples: Int64s) -> Int64s:
        """Where these samples stand."""
        ...
