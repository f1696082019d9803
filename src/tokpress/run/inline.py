"""The worker inside this process, for small inputs and for standard input, which no other process can read.

In: a job and its tasks. Out: the same messages as `local` gives, without starting anything.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

import psutil

from tokpress.run.budget import Budget, callers_memory
from tokpress.run.job import Advanced, Done, Job, Message, Prepared, Settings, Task, WorkerView
from tokpress.run.tasks import continued
from tokpress.run.worker import Worker
from tokpress.storage.local import SyncFailed
from tokpress.store.unfinished import unit_receipts

_SYNC_TRIES = 3


class InlineWorker:
    count = 1

    def __init__(self, job: Job) -> None:
        self._job = job
        self._before = psutil.Process().memory_info().rss
        self._callers = callers_memory()
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
        """What the disk failed to keep is written again, a few times."""
        finished: dict[int, Done] = {}  # not yet told
        todo = {task.unit: task for task in tasks}
        heard_of: dict[int, Advanced] = {}  # what was said of each unit that is not finished, in all
        running = 0  # unit

        def say(message: Message) -> None:
            if isinstance(message, Advanced):
                heard_of[running] = heard_of.get(running, Advanced()) + message
                heard(0, message)
            elif isinstance(message, Done):
                heard_of.pop(message.unit, None)
                finished[message.unit] = message

        failures = 0
        while todo:
            try:
                for task in list(todo.values()):
                    running = task.unit
                    self._worker.run(task, say)
                    yield from _told(finished, todo)
                self._worker.settle(say)
            except SyncFailed:
                failures += 1
                if failures == _SYNC_TRIES:
                    raise
                with suppress(SyncFailed):
                    self._worker.settle(say)
                for unit, task in todo.items():  # known now that nothing is on its way to the disk any more
                    receipts = unit_receipts(self._job.directory, unit)
                    if unit in heard_of:
                        heard(0, lost(heard_of.pop(unit), task, receipts))
                    left = continued(task, receipts)
                    if left is None:
                        say(Done(unit=unit))
                    else:
                        todo[unit] = left
            yield from _told(finished, todo)

    def _go_on(self, todo: dict[int, Task], say: Callable[[Message], None]) -> None:
        """What is left to do is known when nothing is on its way to the disk any more."""
        with suppress(SyncFailed):
            self._worker.settle(say)
        for unit, task in todo.items():
            left = continued(task, unit_receipts(self._job.storage, unit))
            if left is None:
                say(Done(unit=unit))
            else:
                todo[unit] = left

    @property
    def peak_bytes(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self._callers

    def __enter__(self) -> InlineWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def _told(finished: dict[int, Done], todo: dict[int, Task]) -> Iterator[Done]:
    for unit in list(finished):
        del todo[unit]
        yield finished.pop(unit)
