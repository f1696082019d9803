"""A crew of threads, for engines that release the interpreter's lock while they encode.

In: parts. Out: what is made of their ids. The caller works, too: with two workers there is one thread beside it, and whoever
is free takes the next part. The engine's own threads are not used: some of them (those of `tokenizers` and `gigatoken`) do
not survive a fork, and a call in the child would wait for them for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tokpress.batches import TokenBatch
from tokpress.engines.base import Engine
from tokpress.live.base import Documents, T, encode_documents


class ThreadCrew:
    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine = engine
        self._helpers = workers - 1
        self._pool = ThreadPoolExecutor(max(self._helpers, 1), thread_name_prefix="tokpress-encode")

    def encode(self, parts: Sequence[Documents], finish: Callable[[TokenBatch], T]) -> list[T]:
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
        self._pool.shutdown()

    def abandon(self) -> None:
        """A fork has none of its parent's threads: there is nothing to let go of."""
