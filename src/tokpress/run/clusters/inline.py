"""The worker inside this process, for small inputs and for standard input, which no other process can read.

In: orders, which are obeyed when it is polled. Out: what the worker says. A disk that fails to keep what was written ends it
as it would end a process; any other error is raised where it happens.
"""

from __future__ import annotations

import resource
import sys
from collections import deque
from contextlib import suppress
from types import TracebackType

import msgspec
import psutil

from tokpress.run.budget import callers_memory
from tokpress.run.clusters.base import Ended, Hear, Usage
from tokpress.run.messages import Job, Order, Prepared, Reply
from tokpress.run.worker import Worker
from tokpress.storage.base import Storage, WriteAgain


class InlineCluster:
    most = 1

    def __init__(self, job: Job, storage: Storage) -> None:
        self._job = job
        self._storage = storage
        self._before: int = psutil.Process().memory_info().rss
        self._callers = callers_memory()
        self._worker: Worker | None = None
        self._orders: deque[Order] = deque()

    def start(self, *numbers: int) -> None:
        self.stop(*numbers)
        self._worker = Worker(self._job, self._storage)

    def send(self, number: int, order: Order) -> None:  # noqa: ARG002
        self._orders.append(order)

    def poll(self, seconds: float, hear: Hear) -> None:  # noqa: ARG002
        """Obeys all orders that were given."""

        def say(reply: Reply) -> None:
            if isinstance(reply, Prepared):  # what this process held before is not the worker's
                reply = msgspec.structs.replace(reply, footprint=max(reply.footprint - self._before, 0))
            hear(0, reply)

        try:
            while self._orders and self._worker is not None:
                self._worker.obey(self._orders.popleft(), say)
        except WriteAgain as error:
            self.stop(0)
            hear(0, Ended(str(error)))

    def stop(self, *numbers: int) -> None:
        """What is on its way to the disk arrives first, or fails to: then it is known what exists."""
        if not numbers:
            return
        worker, self._worker = self._worker, None
        self._orders.clear()
        if worker is not None:
            with suppress(WriteAgain):
                worker.settle(lambda _: None)

    def usage(self) -> Usage:
        """Nobody can watch a process from inside while it works."""
        return Usage()

    @property
    def peak_bytes(self) -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - self._callers

    def __enter__(self) -> InlineCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
