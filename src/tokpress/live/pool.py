"""The worker pool that encodes the parts of a batch: threads, because all engines release the interpreter's lock.

In: parts of a batch. Out: what is made of their ids, in the same order. The caller works, too: with two workers there is one
thread beside it, and whoever is free takes the next part. The engine's own threads are not used: some of them (those of
`tokenizers` and `gigatoken`) do not survive a fork, and a call in the child would wait for them for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import pyarrow as pa

from tokpress.batches import TokenBatch
from tokpress.engines.base import Engine

Documents: TypeAlias = list[str] | pa.LargeStringArray  # as they come: most libraries take strings
T = TypeVar("T")


class WorkerPool:
    """Made once, used for every batch, and closed at the end."""

    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine = engine
        self._helpers = workers - 1
        self._pool = ThreadPoolExecutor(max(self._helpers, 1), thread_name_prefix="tokpress-encode")

    def encode(self, parts: Sequence[Documents], finish: Callable[[TokenBatch], T]) -> list[T]:
        """`finish` makes something of a part's ids, while others are still encoded. May be called from several threads.
        After an error it can be called again."""
        done: dict[int, T] = {}
        todo = iter(range(len(parts)))  # one for all of them: each number is taken once

        def work() -> None:
            for i in todo:
                done[i] = finish(encode_documents(self._engine, parts[i]))

        helpers = [self._pool.submit(work) for _ in range(min(self._helpers, len(parts) - 1))]
        try:
            work()
        finally:
            for helper in helpers:
                helper.exception()  # waits for it
        for helper in helpers:
            helper.result()
        return [done[i] for i in range(len(parts))]

    def close(self) -> None:
        """Returns when no thread is left; called again it does nothing."""
        self._pool.shutdown()


def encode_documents(engine: Engine, documents: Documents) -> TokenBatch:
    return engine.encode_strings(documents) if isinstance(documents, list) else engine.encode(documents)
