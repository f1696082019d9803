"""Worker processes on this machine.

In: a job and its tasks. Out: what the workers say. Each worker is a fresh interpreter (never a fork of a process with
threads), holds its own tokenizer, writes its own shards, and says over a pipe of its own what it is about to do and what it
has done (`serve`). One that dies or falls silent is replaced, and `Quarantine` says how its unit is tried again.

They are started by `subprocess`, not by `multiprocessing`, whose processes would import the caller's script again: a script
that calls `tokpress.build` needs no `if __name__ == "__main__"`.

Not a pool library, because a task is a quarter of a gigabyte of documents: what has to be watched is the batch, or the one
document, that a worker is busy with.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing.connection import Connection, Pipe, wait
from time import monotonic
from types import TracebackType

import psutil

from tokpress.errors import NotEnoughMemory, TokpressError
from tokpress.interpreter import start_python
from tokpress.run.budget import Budget, callers_memory
from tokpress.run.job import (
    Advanced,
    Done,
    Encoded,
    Encoding,
    Failed,
    Job,
    Message,
    Preload,
    Prepare,
    Prepared,
    Settings,
    Settle,
    Start,
    Task,
    WorkerView,
)
from tokpress.run.quarantine import CRASHED, HUNG, OUT_OF_MEMORY, Quarantine
from tokpress.run.tasks import continued
from tokpress.store.unfinished import unit_receipts

_POLL_SECONDS = 0.05
_OVER_BUDGET = 1.05  # of the run's memory, and
_RUNAWAY = 2  # times a worker's share of it: then a document is exhausting it
_MOST_MEMORY_PER_BYTE = 1000  # that any engine may take for honest text
_STOP_SECONDS = 3.0
_PREPARE_TRIES = 3
_MOST_PROVERS = 8  # more would spend their time finding their part of the sample
_PREPARE_SECONDS = 60.0  # to load a tokenizer and to compare engines, beside what one document may take
_VIEW_SECONDS = 0.5


@dataclass(slots=True)
class WorkerProcess:
    """One worker as its coordinator sees it."""

    number: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    task: Task | None = None
    closing: list[Task] = field(default_factory=list)  # read to their end, but their shards may not exist yet
    settling: bool = False  # it was told to say when they do
    heard_of: dict[int, Advanced] = field(default_factory=dict)  # what it said of each of these units, in all
    encoding: Encoding | None = None  # what it is busy with, if it dies now
    heard: float = field(default_factory=monotonic)
    memory_bytes: int = 0
    usage: psutil.Process | None = None

    @property
    def is_busy(self) -> bool:
        return self.task is not None or bool(self.closing)


class LocalWorkers:
    """Processes that are started once and used for all units; a context manager that leaves none behind."""

    def __init__(self, job: Job, count: int, *, doc_timeout: float, pin: Sequence[set[int]] = ()) -> None:
        self._job = job
        self._doc_timeout = doc_timeout
        self._pin = pin
        self._settings: Settings | None = None
        self._quarantine = Quarantine()
        self.workers = [self._spawn(number) for number in range(count)]
        for worker in self.workers:  # when all of them are on their way: each is listening only after its imports
            self._brief(worker)
        self._budget: Budget | None = None
        self._heard: Callable[[int, Advanced], None] = lambda *_: None
        self._callers = callers_memory()
        self.peak_bytes = 0
        self._in_use = 0  # bytes, when they were last
        self._measured = 0.0
        self._viewed = 0.0
        self._watched: Callable[[list[WorkerView]], None] = lambda _: None

    @property
    def count(self) -> int:
        return len(self.workers)

    def prepare(self) -> Prepared:
        """Has the first workers prove the engine, each on a part of the sample, while the others load theirs."""
        provers = min(len(self.workers), _MOST_PROVERS)
        parts = [slice(number, None, provers) for number in range(provers)]
        for worker, part in zip_longest(self.workers, parts):
            _send(worker, Prepare(part) if part else Preload())
        first, *others = (self._prepared(number, part) for number, part in enumerate(parts))
        return sum(others, first)

    def _prepared(self, number: int, part: slice) -> Prepared:
        """A worker's answer; if it dies of the sample, that of another one, to a smaller sample."""
        for attempt in range(_PREPARE_TRIES):
            worker = self.workers[number]
            if attempt:
                _send(worker, Prepare(part, attempt))
            heard = wait([worker.pipe], _PREPARE_SECONDS + self._doc_timeout)
            for message in _messages(worker):
                if isinstance(message, Failed):
                    raise message.error
                if isinstance(message, Prepared):
                    return message
            cause = _how_it_ended(worker.process) if heard else HUNG
            _kill(worker)
            self.workers[number] = self._start(number)
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
        self._heard, self._watched = heard, watched
        while waiting or any(worker.is_busy for worker in self.workers):
            for worker in self.workers:
                if worker.task is None:
                    self._assign(worker, waiting)
            busy = [worker for worker in self.workers if worker.is_busy]
            wait([worker.pipe for worker in busy], _POLL_SECONDS)  # that of a dead one ends
            for worker in busy:
                alive = worker.process.poll() is None  # asked first: whatever a dead one said last is then in its pipe
                for message in _messages(worker):
                    worker.heard = monotonic()
                    match message:
                        case Encoding():
                            worker.encoding = message
                        case Advanced():
                            worker.encoding = None
                            self._advanced(worker, message)
                        case Encoded() if worker.task is not None:
                            worker.closing.append(worker.task)
                            worker.task = worker.encoding = None
                        case Done(unit=unit):
                            worker.closing = [task for task in worker.closing if task.unit != unit]
                            worker.heard_of.pop(unit, None)
                            yield message
                        case Failed(error):
                            raise error
                cause = self._trouble_with(worker, alive=alive)
                if cause:
                    for again in self._replace(worker, cause):
                        if isinstance(again, Task):
                            waiting.appendleft(again)
                        else:
                            yield again

    def _trouble_with(self, worker: WorkerProcess, *, alive: bool) -> str | None:
        """Why a busy worker has to be replaced, if it has to."""
        if not worker.is_busy:
            return None
        if not alive:
            return _how_it_ended(worker.process)
        budget, used = self._budget, self._memory_in_use()
        over_budget = budget is not None and used > budget.memory_bytes * _OVER_BUDGET
        if budget and over_budget and worker.memory_bytes > _RUNAWAY * budget.worker_bytes:
            self._check_that_it_is_no_large_document(worker)
            return OUT_OF_MEMORY
        if worker.encoding and monotonic() - worker.heard > self._doc_timeout:
            return HUNG
        return None

    def _check_that_it_is_no_large_document(self, worker: WorkerProcess) -> None:
        """A document that takes much memory because it is long is the user's to decide on. It is not set aside: whether it
        is stored must not depend on --memory."""
        last = worker.encoding
        if last and last.first == last.last and worker.memory_bytes < _MOST_MEMORY_PER_BYTE * last.text_bytes:
            source = self._job.inputs[last.first[0]].path
            raise NotEnoughMemory(
                f"the document at {last.first[1]:,} of {source}, {last.text_bytes:,} bytes of text, takes more than "
                f"{worker.memory_bytes // 10**6:,} MB to encode. Run the same command again with more --memory."
            )

    def _start(self, number: int) -> WorkerProcess:
        worker = self._spawn(number)
        self._brief(worker)
        return worker

    def _spawn(self, number: int) -> WorkerProcess:
        ours, theirs = Pipe()
        with _interrupts_ignored():  # which the process inherits: Ctrl-C is for the coordinator alone
            process = start_python("tokpress.run.serve", theirs.fileno(), descriptors=[theirs.fileno()])
        theirs.close()  # so that a dead worker's pipe ends
        return WorkerProcess(number, process, ours)

    def _brief(self, worker: WorkerProcess) -> None:
        cpus = self._pin[worker.number % len(self._pin)] if self._pin else None
        _send(worker, Start(self._job, cpus))

    def _assign(self, worker: WorkerProcess, waiting: deque[Task]) -> None:
        if waiting:
            worker.task, worker.encoding, worker.heard = waiting.popleft(), None, monotonic()
            worker.settling = False
            _send(worker, worker.task)
        elif worker.closing and not worker.settling:
            worker.settling = True
            _send(worker, Settle())

    def _advanced(self, worker: WorkerProcess, advanced: Advanced) -> None:
        if worker.task is not None:
            unit = worker.task.unit
            worker.heard_of[unit] = worker.heard_of.get(unit, Advanced()) + advanced
        self._heard(worker.number, advanced)

    def _replace(self, worker: WorkerProcess, cause: str) -> Iterator[Task | Done]:
        """Puts a fresh process in the place of a dead or silent one. What is left of its tasks goes on after their last
        receipts; if one was its unit's last, the worker died just before it could say so."""
        _kill(worker)
        fresh = self._start(worker.number)
        _send(fresh, self._settings)
        self.workers[self.workers.index(worker)] = fresh
        self._measured = 0.0  # what the old one held is free
        for task in (*worker.closing, *([worker.task] if worker.task else [])):
            receipts = unit_receipts(self._job.storage, task.unit)
            if task.unit in worker.heard_of:
                self._heard(worker.number, lost(worker.heard_of[task.unit], task, receipts))
            left = continued(task, receipts)
            if left is None:
                yield Done(unit=task.unit)
            else:
                yield self._quarantine.retry(left, worker.encoding if task is worker.task else None, cause)

    def _memory_in_use(self) -> int:
        """Asked at every message, measured now and then: it takes a tenth of a millisecond a worker."""
        if monotonic() - self._measured < _POLL_SECONDS:
            return self._in_use
        total: int = psutil.Process().memory_info().rss - self._callers
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
        self._in_use, self._measured = total, monotonic()
        return total

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if kind is None:
                worker.process.kill()  # what matters is on the disk, and it need not tidy up its memory
            else:
                worker.process.terminate()
        until = monotonic() + _STOP_SECONDS
        for worker in self.workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(until - monotonic(), 0))
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
    worker.process.wait()
    worker.pipe.close()


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"{CRASHED}: {signal.Signals(-code).name}" if code < 0 else f"{CRASHED}: exit code {code}"
