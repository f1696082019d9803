"""Batches made ahead of time.

In: tasks, and a function that makes the batches of one. Out: the batches in order, made by threads while the training
step runs. Threads, because the work is copying memory, which NumPy does without the interpreter's lock: nothing is
pickled, no shared memory has a name that could be left behind, and a process that ends takes its threads along. What goes
wrong in a thread is raised where the batch was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar
from weakref import finalize

from tokpress.errors import UsageError

Task = TypeVar("Task")
Made = TypeVar("Made")


class Prefetcher(Generic[Task, Made]):
    """make(task) for each task, in order. With no threads each is made when it is asked for."""

    def __init__(self, make: Callable[[Task], Made], tasks: Iterable[Task], *, threads: int, ahead: int) -> None:
        self._make = make
        self._tasks = iter(tasks)
        self._ahead = ahead
        self._coming: deque[Future[Made]] = deque()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokpress-batch") if threads else None
        # At the latest before the interpreter takes its modules apart: a script may end in the middle of an epoch.
        self._end = finalize(self, _end, self._threads)

    def __iter__(self) -> Iterator[Made]:
        return self

    def __next__(self) -> Made:
        if self._threads is None:
            return self._make(next(self._tasks))
        self._fill(self._threads)
        if not self._coming:
            raise StopIteration
        made = self._coming.popleft().result()
        self._fill(self._threads)  # the thread works while the caller does
        return made

    def _fill(self, threads: ThreadPoolExecutor) -> None:
        for task in islice(self._tasks, self._ahead - len(self._coming)):
            self._coming.append(threads.submit(self._make, task))

    def close(self) -> None:
        """Gives up what was not asked for; returns when no thread works any more."""
        self._end()
        self._coming.clear()
        self._tasks = iter(())


def _end(threads: ThreadPoolExecutor | None) -> None:
    if threads is not None:
        threads.shutdown(wait=True, cancel_futures=True)


class Event(Protocol):
    def query(self) -> bool:
        """Whether the copy is done."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """A batch on its way to a device. Its source must not change until `event` has happened."""

    batch: dict[str, Any]
    source: dict[str, Any]
    event: Event


class Copier(Protocol):
    """Brings batches to a device: `start` in the thread that made the batch, `receive` in the training loop."""

    def start(self, batch: dict[str, Any]) -> Copy: ...

    def receive(self, copy: Copy) -> dict[str, Any]: ...


class InFlight:
    """Holds on to what is being copied from, until the copy is done: memory that is held is not used again."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._copies: deque[Copy] = deque()

    def receive(self, copy: Copy) -> dict[str, Any]:
        self._copies.append(copy)
        while self._copies and self._copies[0].event.query():
            self._copies.popleft()
        return self._copier.receive(copy)


class CudaCopier:
    """Copies on a stream of its own, beside the training step; the step's stream waits for the copy, the host does not."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = torch.device(device)
        self._stream = self._torch.cuda.Stream(self._device)

    def start(self, batch: dict[str, Any]) -> Copy:
        with self._torch.cuda.stream(self._stream):
            there = {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
            event = self._torch.cuda.Event()
            event.record(self._stream)
        return Copy(there, batch, event)

    def receive(self, copy: Copy) -> dict[str, Any]:
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(copy.event)
        for tensor in copy.batch.values():
            tensor.record_stream(stream)  # it was made on the other stream: its memory must outlive its use on this one
        return copy.batch


def copier_to(device: str | None, *, as_tensors: bool) -> CudaCopier | None:
    """None: batches stay where they are made."""
    if device is None or device == "cpu":
        return None
    if not as_tensors:
        raise UsageError(f"device={device!r} needs tensors. Install torch and ask for output='torch'.")
    return CudaCopier(device)
