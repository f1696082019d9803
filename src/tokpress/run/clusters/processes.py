"""Worker processes on this machine.

In: orders. Out: what the workers say. Each worker is a fresh interpreter (never a fork of a process with threads), holds its
own tokenizer, writes its own shards, and says over a pipe of its own what it is about to do and what it has done (`serve`).

They are started by `subprocess`, not by `multiprocessing`, whose processes would import the caller's script again: a script
that calls `tokpress.build` needs no `if __name__ == "__main__"`.

Not a pool library, because a task is a quarter of a gigabyte of documents: what has to be watched is the batch, or the one
document, that a worker is busy with.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from time import monotonic
from types import TracebackType

import msgspec
import psutil

from tokpress.interpreter import start_python
from tokpress.records import STDIN
from tokpress.run.budget import callers_memory
from tokpress.run.clusters.base import CRASHED, Ended, Hear, Usage, WorkerUsage
from tokpress.run.messages import Job, Order, Reply, decode_reply, encode
from tokpress.storage.requests import REQUESTS, requests_in_flight

_STOP_SECONDS = 3.0


@dataclass(slots=True)
class _Process:
    process: subprocess.Popen[bytes]
    pipe: Connection
    usage: psutil.Process | None = None


class ProcessCluster:
    def __init__(self, job: Job, count: int, *, pin: Sequence[set[int]] = ()) -> None:
        self.most = count
        self.peak_bytes = 0
        self._job = job
        self._pin = pin
        self._reads_input = any(source.path == STDIN for source in job.inputs)
        self._processes: dict[int, _Process] = {}
        self._callers = callers_memory()
        self._gate = tempfile.TemporaryFile()  # noqa: SIM115 - of this host, closed with it, and without a name that could stay

    def start(self, *numbers: int) -> None:
        self.stop(*numbers)
        for number in numbers:
            self._processes[number] = self._spawn()
        for number in numbers:  # when all of them are on their way: each is listening only after its imports
            cpus = self._pin[number % len(self._pin)] if self._pin else None
            self.send(number, msgspec.structs.replace(self._job, cpus=cpus))

    def _spawn(self) -> _Process:
        ours, theirs = Pipe()
        descriptors = [theirs.fileno(), self._gate.fileno()]
        with _interrupts_ignored():  # which the process inherits: Ctrl-C is for the coordinator alone
            process = start_python(
                "tokpress.run.clusters.serve",
                *descriptors,
                descriptors=descriptors,
                reads_input=self._reads_input,
                environment={REQUESTS: str(max(requests_in_flight() // self.most, 1))},  # a limit of the whole run
            )
        theirs.close()  # so that a dead worker's pipe ends
        return _Process(process, ours)

    def send(self, number: int, order: Order) -> None:
        with suppress(KeyError, BrokenPipeError, ConnectionResetError):
            self._processes[number].pipe.send_bytes(encode(order))

    def poll(self, seconds: float, hear: Hear) -> None:
        wait([worker.pipe for worker in self._processes.values()], seconds)  # that of a dead one ends
        for number, worker in list(self._processes.items()):
            alive = worker.process.poll() is None  # asked first: whatever a dead one said last is then in its pipe
            for reply in _replies(worker):
                hear(number, reply)
            if not alive and self._processes.get(number) is worker:
                self._end(self._processes.pop(number))
                hear(number, Ended(_how_it_ended(worker.process)))

    def stop(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._processes:
                self._end(self._processes.pop(number))

    def _end(self, worker: _Process) -> None:
        worker.process.kill()
        worker.process.wait()
        worker.pipe.close()

    def usage(self) -> Usage:
        coordinator: int = psutil.Process().memory_info().rss - self._callers
        usage = Usage({number: _usage(worker) for number, worker in self._processes.items()}, coordinator)
        self.peak_bytes = max(self.peak_bytes, usage.memory_bytes)
        return usage

    @property
    def pids(self) -> dict[int, int]:
        """The processes that run, by their workers' numbers."""
        return {number: worker.process.pid for number, worker in self._processes.items()}

    def __enter__(self) -> ProcessCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """All of them end. Where all is done they need not even tidy up their memory."""
        workers = list(self._processes.values())
        for worker in workers:
            if kind is None:
                worker.process.kill()
            else:
                worker.process.terminate()
        until = monotonic() + _STOP_SECONDS
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(until - monotonic(), 0))
        self.stop(*self._processes)
        self._gate.close()


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


def _replies(worker: _Process) -> Iterator[Reply]:
    """All that a worker has said; also the last words of a dead one."""
    try:
        while worker.pipe.poll():
            yield decode_reply(worker.pipe.recv_bytes())
    except (EOFError, OSError):
        return


def _usage(worker: _Process) -> WorkerUsage:
    try:
        worker.usage = worker.usage or psutil.Process(worker.process.pid)
        return WorkerUsage(worker.usage.memory_info().rss, worker.usage.cpu_percent())
    except psutil.NoSuchProcess:
        return WorkerUsage()


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"{CRASHED}: {signal.Signals(-code).name}" if code < 0 else f"{CRASHED}: exit code {code}"
