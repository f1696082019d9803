"""The contract of a crew: those who encode the parts of a batch.

In: parts of a batch. Out: what is made of their ids, in the same order. A crew is made once, used for every batch and closed
at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from tokpress.batches import TokenBatch
from tokpress.engines.base import Engine

Documents: TypeAlias = list[str] | pa.LargeStringArray  # as they come: most libraries take strings
T = TypeVar("T")


class Crew(Protocol):
    def encode(self, parts: Sequence[Documents], finish: Callable[[TokenBatch], T]) -> list[T]:
        """`finish` makes something of a part's ids, while others are still encoded. May be called from several threads.
        After an error it can be called again."""
        ...

    def close(self) -> None:
        """Returns when no worker is left; called again it does nothing."""
        ...

    def abandon(self) -> None:
        """In a fork: lets go of what belongs to the parent, without touching it."""
        ...


def encode_documents(engine: Engine, documents: Documents) -> TokenBatch:
    return engine.encode_strings(documents) if isinstance(documents, list) else engine.encode(documents)
