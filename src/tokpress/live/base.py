"""The contract of a crew: those who encode the parts of a batch.

In: parts of a batch. Out: their ids, in the same order. A crew is made once, used for every batch and closed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tokpress.batches import TokenBatch


class Crew(Protocol):
    def encode(self, parts: Sequence[pa.LargeStringArray]) -> list[TokenBatch]:
        """May be called from several threads. After an error it can be called again."""
        ...

    def close(self) -> None:
        """Returns when no worker is left; called again it does nothing."""
        ...

    def abandon(self) -> None:
        """In a fork: lets go of what belongs to the parent, without touching it."""
        ...
