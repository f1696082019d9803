"""Text -> ids by whatever is faster: a plain call, or a crew.

In: documents. Out: ids equal to those of a plain call, or what is made of them. The crew is made when it first pays, and
only once: threads if the engine releases the interpreter's lock, processes if it does not. A fork makes a crew of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Literal

import numpy as np

from tokpress.batches import Int64s, TokenBatch, string_buffers
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine, concat_tokens
from tokpress.errors import UsageError
from tokpress.live.base import Crew, Documents, T, encode_documents
from tokpress.live.costs import Costs, bounds_of, measure_costs, quickest
from tokpress.live.processes import ProcessCrew
from tokpress.live.proof import ProvedEngine
from tokpress.live.threads import ThreadCrew
from tokpress.machine import usable_cores
from tokpress.records import TokenizerFiles

Use = Literal["auto", "threads", "processes"]
_HANDOVER = {"threads": 50e-6, "processes": 200e-6}  # seconds, until it is measured
_MOST = 4  # times that: more is a busy moment, and must not keep a pool from being used for ever


class Encoder:
    def __init__(
        self, files: TokenizerFiles, config: TokenizerConfig, engine: Engine, *, workers: int | None, use: Use
    ) -> None:
        if use not in ("auto", "threads", "processes"):
            raise UsageError(f'use={use!r} is not known. Give "auto", "threads" or "processes".')
        if workers is not None and workers < 1:
            raise UsageError(f"workers={workers}: at least one has to work. Leave it out for one a core.")
        self._files, self._config = files, config
        self.engine = engine
        self.workers = workers or _default_workers()
        self.use: Use = use if use != "auto" else "threads" if engine.releases_lock else "processes"
        fast = engine.fast if isinstance(engine, ProvedEngine) else engine
        self.costs = measure_costs(fast, _HANDOVER[self.use])
        self._home = _Home()
        self._closed = False

    def encode(self, documents: Documents, *, beside: bool = False) -> TokenBatch:
        """`beside`: something else runs in this process and must not wait for the interpreter's lock."""
        return concat_tokens(self.each_part(documents, lambda tokens: tokens, beside=beside))

    def each_part(self, documents: Documents, finish: Callable[[TokenBatch], T], *, beside: bool = False) -> list[T]:
        """What `finish` makes of each part's ids, while others are still encoded."""
        if self._closed:
            raise UsageError("this tokenizer is closed. Make a new one.")
        starts = _starts(documents)
        parts = self.costs.parts(int(starts[-1] - starts[0]), len(documents), self.workers)
        if parts == 1 and not (beside and self.use == "processes" and len(documents)):
            return [finish(encode_documents(self.engine, documents))]
        bounds = bounds_of(parts, starts)
        return self._crew().encode([documents[first:last] for first, last in bounds], finish)

    def _crew(self) -> Crew:
        home = self._home
        if home.pid != os.getpid():  # a fork: it has none of the parent's threads, and no right to its processes
            if home.crew is not None:
                home.crew.abandon()
            home = self._home = _Home()
        with home.lock:
            if home.crew is None:
                home.crew = self._make_crew()
                crew = home.crew
                crew.encode([[""]], len)  # processes are there when they answer
                handover = min(quickest(lambda: crew.encode([[""], [""]], len)) / 2, _MOST * _HANDOVER[self.use])
                self.costs = Costs(self.costs.call, self.costs.byte, handover)
            return home.crew

    def _make_crew(self) -> Crew:
        if self.use == "threads":
            return ThreadCrew(self.engine, self.workers)
        return ProcessCrew(self._files, self._config, self.workers)

    def close(self) -> None:
        self._closed = True
        if self._home.crew is not None and self._home.pid == os.getpid():
            self._home.crew.close()


class _Home:
    """The process that a crew belongs to."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.crew: Crew | None = None


def _starts(documents: Documents) -> Int64s:
    """At which byte each document starts, and where the last one ends. Raises UnicodeEncodeError for what is no Unicode:
    some libraries would take it, and change it."""
    if isinstance(documents, list):
        return np.cumsum([0, *(len(document.encode()) for document in documents)])
    return string_buffers(documents)[0]


def _default_workers() -> int:
    """One a core; but one only inside a worker of a `DataLoader`, beside which others work."""
    return 1 if multiprocessing.current_process().daemon else usable_cores()
