"""Worker processes on this machine.

In: a job and its tasks. Out: what the workers say. Each worker is a fresh interpreter (never a fork of a process with
threads), holds its own tokenizer, writes its own shards, and says over a pipe of its own what it is about to do and what it
has done. One that dies or falls silent is replaced, and `Quarantine` says how its unit is tried again.

Not a pool library, because a task is a quarter of a gigabyte of documents: what has to be watched is the batch, or the one
document, that a worker is busy with.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from types import TracebackType

import psutil

from tokpress.errors import TokpressError
from tokpress.run.budget import Budget
from tokpress.run.job import (
    Advanced,
    Done,
    Encoding,
    Failed,
    Job,
    Message,
    Preload,
    Prepare,
    Prepared,
    Settings,
    Task,
    WorkerView,
)
from tokpress.run.output import continued, unit_receipts
from tokpress.run.quarantine import CRASHED, HUNG, OUT_OF_MEMORY, Quarantine
from tokpress.store.durable import SyncFailed

_POLL_SECONDS = 0.1
_OVER_BUDGET = 1.05  # of the run's memory, and
_RUNAWAY = 2  # times a worker's share of it: then a document is exhausting it
_STOP_SECONDS = 3.0
_PREPARE_TRIES = 3
_VIEW_SECONDS = 0.5
SYNC_FAILED = 74  # exit code of a worker whose disk refused to sync


@dataclass(slots=True)
class WorkerProcess:
    """One worker as its coordinator sees it."""

    number: int
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    encoding: Encoding | None = None  # what it is busy with, if it dies now
    heard: float = field(default_factory=monotonic)
    memory_bytes: int = 0
    usage: psutil.Process | None = None


class LocalWorkers:
    """Processes that are started once and used for all units; a context manager that leaves none behind."""

    def __init__(self, job: Job, count: int, *, doc_timeout: float, pin: Sequence[set[int]] = ()) -> None:
        self._job = job
        self._doc_timeout = doc_timeout
        self._pin = pin
        self._spawn = multiprocessing.get_context("spawn")
        self._settings: Settings | None = None
        self._quarantine = Quarantine()
        self.workers = [self._start(number) for number in range(count)]
        self._budget = Budget(memory_bytes=0, workers=count, batch_bytes=0, worker_bytes=0)
        self.peak_bytes = 0
        self._viewed = 0.0
        self._watched: Callable[[list[WorkerView]], None] = lambda _: None

    def prepare(self) -> Prepared:
        """Has the first worker prove the engine, while the others load theirs."""
        for other in self.workers[1:]:
            _send(other, Preload())
        for attempt in range(_PREPARE_TRIES):
            first = self.workers[0]
            _send(first, Prepare(attempt))
            wait([first.pipe, first.process.sentinel])
            for message in _messages(first):
                if isinstance(message, Failed):
                    raise message.error
                if isinstance(message, Prepared):
                    return message
            cause = _how_it_ended(first.process)
            _kill(first)
            self.workers[0] = self._start(0)
        raise TokpressError(
            f"a worker dies each time it loads the tokenizer or encodes a sample of the inputs ({cause}). Is there enough "
            "memory? Try the reference alone: --engine huggingface, sentencepiece or tiktoken"
        )

    def configure(self, settings: Settings, budget: Budget) -> None:
        """Keeps as many workers as the budget allows and tells them how to work."""
        for surplus in self.workers[budget.workers :]:
            _kill(surplus)
        self.workers = self.workers[: budget.workers]
        self._budget = budget
        self._settings = settings
        for worker in self.workers:
            _send(worker, settings)

    def run(
        self,
        tasks: Sequence[Task],
        heard: Callable[[int, Advanced], None],
        watched: Callable[[list[WorkerView]], None],
    ) -> Iterator[Done]:
        """Units as they are finished, in no order. Raises what a worker could not deal with."""
        waiting = deque(tasks)
        self._watched = watched
        while waiting or any(worker.task for worker in self.workers):
            for worker in self.workers:
                if worker.task is None and waiting:
                    self._assign(worker, waiting.popleft())
            busy = [worker for worker in self.workers if worker.task]
            handles = [handle for worker in busy for handle in (worker.pipe, worker.process.sentinel)]
            wait(handles, _POLL_SECONDS)
            for worker in busy:
                alive = worker.process.is_alive()  # asked first: whatever a dead one said last is then in its pipe
                for message in _messages(worker):
                    worker.heard = monotonic()
                    match message:
                        case Encoding():
                            worker.encoding = message
                        case Advanced():
                            worker.encoding = None
                            heard(worker.number, message)
                        case Done():
                            worker.task = worker.encoding = None
                            yield message
                        case Failed(error):
                            raise error
                cause = self._trouble_with(worker, alive=alive)
                if cause:
                    again = self._replace(worker, cause)
                    if isinstance(again, Task):
                        waiting.appendleft(again)
                    else:
                        yield again

    def _trouble_with(self, worker: WorkerProcess, *, alive: bool) -> str | None:
        """Why a busy worker has to be replaced, if it has to."""
        if worker.task is None:
            return None
        if not alive:
            return _how_it_ended(worker.process)
        if worker.encoding and monotonic() - worker.heard > self._doc_timeout:
            return HUNG
        over_budget = self._memory_in_use() > self._budget.memory_bytes * _OVER_BUDGET
        if over_budget and worker.memory_bytes > _RUNAWAY * self._budget.worker_bytes:
            return OUT_OF_MEMORY
        return None

    def _start(self, number: int) -> WorkerProcess:
        ours, theirs = self._spawn.Pipe()
        cpus = self._pin[number % len(self._pin)] if self._pin else None
        process = self._spawn.Process(
            target=_serve, args=(theirs, self._job, cpus), daemon=True, name=f"worker-{number}"
        )
        with _interrupts_ignored():  # which the process inherits: Ctrl-C is for the coordinator alone
            process.start()
        theirs.close()  # so that a dead worker's pipe ends
        return WorkerProcess(number, process, ours)

    def _assign(self, worker: WorkerProcess, task: Task) -> None:
        worker.task, worker.encoding, worker.heard = task, None, monotonic()
        _send(worker, task)

    def _replace(self, worker: WorkerProcess, cause: str) -> Task | Done:
        """Puts a fresh process in the place of a dead or silent one. What is left of its task goes on after its last
        receipt; if that was the unit's last, it died just before it could say so."""
        task = worker.task
        assert task is not None
        _kill(worker)
        fresh = self._start(worker.number)
        _send(fresh, self._settings)
        self.workers[self.workers.index(worker)] = fresh
        left = continued(task, unit_receipts(self._job.directory, task.unit))
        if left is None:
            return Done(unit=task.unit, stage_seconds={}, cpu_seconds=0.0)
        return self._quarantine.retry(left, worker.encoding, cause)

    def _memory_in_use(self) -> int:
        total: int = psutil.Process().memory_info().rss
        for worker in self.workers:
            try:
                worker.usage = worker.usage or psutil.Process(worker.process.pid)
                worker.memory_bytes = worker.usage.memory_info().rss
            except psutil.NoSuchProcess:
                worker.memory_bytes = 0
            total += worker.memory_bytes
        if monotonic() - self._viewed > _VIEW_SECONDS:
            self._viewed = monotonic()
            self._watched([_view(worker) for worker in self.workers])
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.process.terminate()
        until = monotonic() + _STOP_SECONDS
        for worker in self.workers:
            worker.process.join(max(until - monotonic(), 0))
            _kill(worker)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # no other thread may say how signals are taken
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _messages(worker: WorkerProcess) -> Iterator[Message]:
    """All that a worker has said; also the last words of a dead one."""
    try:
        while worker.pipe.poll():
            yield worker.pipe.recv()
    except (EOFError, OSError):
        return


def _view(worker: WorkerProcess) -> WorkerView:
    try:
        cpu = worker.usage.cpu_percent() if worker.usage else 0.0  # since the last time it was asked
    except psutil.NoSuchProcess:
        cpu = 0.0
    unit = worker.task.unit if worker.task else None
    return WorkerView(number=worker.number, unit=unit, cpu_percent=cpu, memory_bytes=worker.memory_bytes)


def _send(worker: WorkerProcess, what: object) -> None:
    """A worker that has just died cannot be told anything; it is found dead and replaced later."""
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.pipe.send(what)


def _kill(worker: WorkerProcess) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _how_it_ended(process: BaseProcess) -> str:
    process.join()
    code = process.exitcode or 0
    return f"{CRASHED}: {signal.Signals(-code).name}" if code < 0 else f"{CRASHED}: exit code {code}"


def _serve(pipe: Connection, job: Job, cpus: set[int] | None) -> None:
    """A worker's whole life: load, then one task after the other until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the coordinator decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if cpus:
        os.sched_setaffinity(0, cpus)
    from tokpress.run.worker import Worker

    try:
        worker = Worker(job)
        for order in _orders(pipe):
            match order:
                case Prepare(attempt):
                    pipe.send(worker.prepare(attempt))
                case Preload():
                    worker.preload()
                case Settings() as settings:
                    worker.configure(settings)
                case Task() as task:
                    pipe.send(worker.run(task, pipe.send))
    except BrokenPipeError:
        return  # the coordinator is gone
    except SyncFailed:
        sys.exit(SYNC_FAILED)  # what was not written is written again, by a fresh worker
    except (TokpressError, OSError) as error:
        pipe.send(Failed(error))


def _orders(pipe: Connection) -> Iterator[object]:
    """What the coordinator asks for, until it is gone."""
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        yield order
