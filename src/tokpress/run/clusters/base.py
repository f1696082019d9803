"""The contract of a cluster.

In: orders to workers, by number. Out: what they say, and how they ended. A cluster decides nothing: a worker that dies is
reported, and stays dead until it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from tokpress.run.messages import Order, Reply

CRASHED = "crashed-tokenizer"


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker is gone."""

    cause: str


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    memory_bytes: int = 0
    cpu_percent: float = 0.0  # since it was last asked


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run uses, at one moment."""

    workers: Mapping[int, WorkerUsage] = field(default_factory=dict)
    coordinator_bytes: int = 0  # beyond what its caller held

    @property
    def memory_bytes(self) -> int:
        return self.coordinator_bytes + sum(worker.memory_bytes for worker in self.workers.values())


Hear = Callable[[int, Reply | Ended], None]


class Cluster(Protocol):
    """A context manager that leaves nothing running behind."""

    most: int  # workers that it can run

    @property
    def peak_bytes(self) -> int:
        """The most memory that was seen in use."""
        ...

    def start(self, *numbers: int) -> None:
        """Fresh workers under these numbers, in the place of those that had them."""
        ...

    def send(self, number: int, order: Order) -> None:
        """One that has just died cannot be told anything, and is found dead later."""
        ...

    def poll(self, seconds: float, hear: Hear) -> None:
        """Tells what workers have said, waiting so long for the first word; of a dead one its last words, then `Ended`."""
        ...

    def stop(self, *numbers: int) -> None:
        """Ends workers at once. What matters is on the disk."""
        ...

    def usage(self) -> Usage: ...

    def __enter__(self) -> Cluster: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
