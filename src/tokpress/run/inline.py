"""The worker inside this process, for small inputs and for standard input, which no other process can read.

In: a job and its tasks. Out: the same messages as `local` gives, without starting anything.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType

import psutil

from tokpress.run.budget import Budget
from tokpress.run.job import Advanced, Done, Job, Message, Prepared, Settings, Task, WorkerView
from tokpress.run.output import continued, unit_receipts
from tokpress.run.worker import Worker
from tokpress.store.durable import SyncFailed

_SYNC_TRIES = 3


class InlineWorker:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._before = psutil.Process().memory_info().rss  # what the caller's process holds is none of the run's
        self._worker = Worker(job)

    def prepare(self) -> Prepared:
        prepared = self._worker.prepare()
        return replace(prepared, footprint=max(prepared.footprint - self._before, 0))

    def configure(self, settings: Settings, budget: Budget) -> None:  # noqa: ARG002 - there is only this one
        self._worker.configure(settings)

    def run(
        self,
        tasks: Sequence[Task],
        heard: Callable[[int, Advanced], None],
        watched: Callable[[list[WorkerView]], None],  # noqa: ARG002 - nobody can watch a process from inside
    ) -> Iterator[Done]:
        def say(message: Message) -> None:
            if isinstance(message, Advanced):
                heard(0, message)

        for task in tasks:
            yield self._run(task, say)

    def _run(self, task: Task, say: Callable[[Message], None]) -> Done:
        """Writes a unit; what the disk failed to keep is written again, a few times."""
        failures = 0
        while (left := continued(task, unit_receipts(self._job.directory, task.unit))) is not None:
            try:
                return self._worker.run(left, say)
            except SyncFailed:
                failures += 1
                if failures == _SYNC_TRIES:
                    raise
        return Done(unit=task.unit, stage_seconds={}, cpu_seconds=0.0)

    @property
    def peak_bytes(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def __enter__(self) -> InlineWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
