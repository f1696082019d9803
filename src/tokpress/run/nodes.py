"""Which machine does which unit.

In: units, and machines that come and go. Out: units as they are finished. All policy is here, none of it knows how
machines are reached: it is tested, and tried out with ten thousand of them (bench/scale_sim.py), with machines and a
clock that are none. Every machine has a few units at a time, more than it has workers, so that none waits.
What a lost one had goes to others, which go on from its receipts. When nothing is left to begin, the units that were
begun first are begun once more by whoever is idle: a machine that is slow or hangs does not hold up the end. That is
harmless, for whoever writes a unit writes the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from time import monotonic
from typing import Protocol

from tokpress.errors import TokpressError

_IN_HAND = 1.5  # times what a machine finishes between two words
_COPY_AFTER = 2.0  # times as long as units take
_LOSSES = 20  # machines that may be lost one after the other, with no unit finished


@dataclass(frozen=True, slots=True)
class Joined:
    node: str
    workers: int


@dataclass(frozen=True, slots=True)
class Lost:
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class Finished:
    node: str
    unit: int


NodeEvent = Joined | Lost | Finished


class Nodes(Protocol):
    """How machines are reached."""

    @property
    def pause(self) -> float:
        """Seconds between two words with one machine. With thousands of them each is asked seldom."""
        ...

    def poll(self, seconds: float) -> Sequence[NodeEvent]:
        """What happened, waiting so long for the first; raises what no machine can deal with."""
        ...

    def assign(self, node: str, units: list[int]) -> None: ...


@dataclass(slots=True)
class _Node:
    workers: int
    joined: float
    finished: int = 0
    units: set[int] = field(default_factory=set)

    def slots(self, now: float, pause: float) -> int:
        """Units that it has at a time: some in hand, so that none of its workers waits for the next word."""
        rate = self.finished / max(now - self.joined, pause, 1.0)
        return self.workers + max(self.workers // 2, 1, ceil(_IN_HAND * rate * pause))


class NodeScheduler:
    """`copies` counts the units that were begun once more."""

    def __init__(self, nodes: Nodes, sizes: Sequence[int], *, clock: Callable[[], float] = monotonic) -> None:
        self._nodes = nodes
        self._sizes = sizes
        self._clock = clock
        self._known: dict[str, _Node] = {}
        self._idle: dict[str, None] = {}  # nodes with a free slot, in order
        self._waiting: deque[int] = deque()
        self._begun: dict[int, float] = {}  # units under way, in the order in which they were begun
        self._doing: dict[int, set[str]] = {}
        self._done: set[int] = set()
        self._losses = 0
        self._seconds = self._bytes = 0.0  # that finished units took
        self.copies = 0

    @property
    def num_nodes(self) -> int:
        return len(self._known)

    def run(self, units: Sequence[int], seconds: float = 1.0) -> Iterator[int]:
        """Each unit once, as it is finished. `seconds`: the longest time between two looks at what is slow."""
        self._waiting.extend(sorted(units, key=lambda unit: (-self._sizes[unit], unit)))
        left = len(units)
        while left:
            for event in self._nodes.poll(seconds):
                unit = self._hear(event)
                if unit is not None:
                    left -= 1
                    yield unit
            self._assign()

    def _hear(self, event: NodeEvent) -> int | None:
        """The unit that was finished, if one was for the first time."""
        match event:
            case Joined(node, workers):
                self._known[node] = _Node(workers, self._clock())
                self._idle[node] = None
            case Lost(node, cause) if node in self._known:
                self._lose(node, cause)
            case Finished(node, unit):
                if node in self._known:
                    self._known[node].finished += 1
                self._free(node, unit)
                return self._finish(unit)
        return None

    def _lose(self, node: str, cause: str) -> None:
        self._losses += 1
        if self._losses > _LOSSES + len(self._known):
            raise TokpressError(
                f"machines are lost one after the other and no unit is finished (the last: {cause}). Mend that and run the "
                "same command again: what is finished is kept."
            )
        self._idle.pop(node, None)
        for unit in self._known.pop(node).units:
            self._doing[unit].discard(node)
            if not self._doing[unit]:
                del self._doing[unit], self._begun[unit]
                self._waiting.appendleft(unit)

    def _free(self, node: str, unit: int) -> None:
        if node in self._known:
            self._known[node].units.discard(unit)
            self._idle[node] = None

    def _finish(self, unit: int) -> int | None:
        if unit in self._done:
            return None
        self._done.add(unit)
        self._losses = 0
        began = self._begun.pop(unit, None)
        if began is not None:
            self._seconds += self._clock() - began
            self._bytes += self._sizes[unit] + 1
        for node in self._doing.pop(unit, ()):  # others may still be busy with it: what they write is the same
            self._free(node, unit)
        return unit

    def _assign(self) -> None:
        now, pause = self._clock(), self._nodes.pause
        for node in list(self._idle):
            state = self._known[node]
            slots = state.slots(now, pause)
            units: list[int] = []
            while len(state.units) < slots and (unit := self._next(node)) is not None:
                units.append(unit)
                state.units.add(unit)
                self._doing.setdefault(unit, set()).add(node)
                self._begun.setdefault(unit, now)
            if len(state.units) >= slots:
                del self._idle[node]
            if units:
                self._nodes.assign(node, units)
            elif not self._waiting:
                return  # nobody else gets anything either

    def _next(self, node: str) -> int | None:
        if self._waiting:
            return self._waiting.popleft()
        for unit, began in self._begun.items():  # the oldest first
            usual = (self._sizes[unit] + 1) * self._seconds / self._bytes if self._bytes else float("inf")
            if self._clock() - began < _COPY_AFTER * usual:
                return None
            if len(self._doing[unit]) == 1 and node not in self._doing[unit]:
                self.copies += 1
                return unit
        return None
