"""Text -> ids by whatever is faster: a plain call, or a pool of threads.

In: documents. Out: ids equal to those of a plain call, or what is made of them. The pool is made when it first pays, and
only once. A fork makes a pool of its own: it has none of its parent's threads.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable

import numpy as np

from tokpress.arguments import whole_number
from tokpress.batches import Int64s, TokenBatch, string_buffers
from tokpress.engines.base import Engine, concat_tokens
from tokpress.errors import UsageError
from tokpress.live.costs import Costs, bounds_of, measure_costs, quickest
from tokpress.live.pool import Documents, T, WorkerPool, encode_documents
from tokpress.live.proof import ProvedEngine
from tokpress.machine import usable_cores

_HANDOVER = 50e-6  # seconds, until it is measured
_MOST = 4  # times that: more is a busy moment, and must not keep a pool from being used for ever


class Encoder:
    def __init__(self, engine: Engine, *, workers: int | None) -> None:
        if workers is not None and whole_number("workers", workers) < 1:
            raise UsageError(f"workers={workers}: at least one has to work. Leave it out for one a core.")
        self.engine = engine
        self.workers = workers or _default_workers()
        fast = engine.fast if isinstance(engine, ProvedEngine) else engine
        self.costs = measure_costs(fast, _HANDOVER)
        self._home = _Home()
        self._closed = False

    def encode(self, documents: Documents) -> TokenBatch:
        return concat_tokens(self.each_part(documents, lambda tokens: tokens))

    def each_part(self, documents: Documents, finish: Callable[[TokenBatch], T]) -> list[T]:
        """What `finish` makes of each part's ids, while others are still encoded."""
        if self._closed:
            raise UsageError("this tokenizer is closed. Make a new one.")
        starts = _starts(documents)
        parts = self.costs.parts(int(starts[-1] - starts[0]), len(documents), self.workers)
        if parts == 1:
            return [finish(encode_documents(self.engine, documents))]
        bounds = bounds_of(parts, starts)
        return self._pool().encode([documents[first:last] for first, last in bounds], finish)

    def _pool(self) -> WorkerPool:
        home = self._home
        if home.pid != os.getpid():  # a fork
            home = self._home = _Home()
        with home.lock:
            if home.pool is None:
                pool = home.pool = WorkerPool(self.engine, self.workers)
                pool.encode([[""]], len)
                handover = min(quickest(lambda: pool.encode([[""], [""]], len)) / 2, _MOST * _HANDOVER)
                self.costs = Costs(self.costs.call, self.costs.byte, handover)
            return home.pool

    def close(self) -> None:
        self._closed = True
        if self._home.pool is not None and self._home.pid == os.getpid():
            self._home.pool.close()


class _Home:
    """The process that a pool belongs to."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.pool: WorkerPool | None = None


def _starts(documents: Documents) -> Int64s:
    """At which byte each document starts, and where the last one ends. Raises UnicodeEncodeError for what is no Unicode:
    some libraries would take it, and change it."""
    if isinstance(documents, list):
        return np.cumsum([0, *(len(document.encode()) for document in documents)])
    return string_buffers(documents)[0]


def _default_workers() -> int:
    """One a core; but one only inside a worker of a `DataLoader`, beside which others work."""
    return 1 if multiprocessing.current_process().daemon else usable_cores()
