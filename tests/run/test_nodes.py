"""Which machine does which unit: with machines that are none and a clock that is told the time."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.errors import TokpressError
from tokpress.run.nodes import Finished, Joined, Lost, NodeEvent, NodeScheduler


class FakeNodes:
    """A unit takes as many seconds as its size, times the machine's slowness; each machine has one worker."""

    pause = 0.0

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.now = 0.0
        self.slowness: dict[str, float] = {}
        self.free_at: dict[str, float] = {}
        self.coming: list[tuple[float, int, NodeEvent]] = []
        self.begun: Counter[int] = Counter()
        self.gone: set[str] = set()

    def at(self, time: float, event: NodeEvent) -> None:
        heapq.heappush(self.coming, (time, len(self.coming) + self.begun.total() * 10**6, event))

    def join(self, node: str, at: float = 0.0, slowness: float = 1.0) -> None:
        self.slowness[node], self.free_at[node] = slowness, at
        self.at(at, Joined(node, 1))

    def lose(self, node: str, at: float) -> None:
        self.at(at, Lost(node, "killed"))

    def assign(self, node: str, units: list[int]) -> None:
        for unit in units:
            self.begun[unit] += 1
            self.free_at[node] = max(self.free_at[node], self.now) + self.sizes[unit] * self.slowness[node]
            self.at(self.free_at[node], Finished(node, unit))

    def poll(self, seconds: float) -> list[NodeEvent]:
        if not self.coming or self.coming[0][0] > self.now + seconds:
            self.now += seconds
            return []
        time, _, event = heapq.heappop(self.coming)
        self.now = max(self.now, time)
        if isinstance(event, Lost):
            self.gone.add(event.node)
        return [] if isinstance(event, Finished) and event.node in self.gone else [event]


def run(nodes: FakeNodes) -> tuple[list[int], NodeScheduler]:
    scheduler = NodeScheduler(nodes, nodes.sizes, clock=lambda: nodes.now)
    return list(scheduler.run(range(len(nodes.sizes)))), scheduler


def test_every_unit_is_done_once_where_nothing_happens() -> None:
    nodes = FakeNodes([5, 1, 4, 2, 3])
    nodes.join("a")
    nodes.join("b")
    done, scheduler = run(nodes)
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert set(nodes.begun.values()) == {1}
    assert scheduler.copies == 0


def test_the_largest_are_begun_first() -> None:
    nodes = FakeNodes([1, 9, 5])
    nodes.join("a")
    assert run(nodes)[0] == [1, 2, 0]


def test_one_that_joins_late_takes_part() -> None:
    nodes = FakeNodes([10] * 8)
    nodes.join("a")
    nodes.join("b", at=25)
    run(nodes)
    assert nodes.now < 60


def test_what_a_lost_one_had_is_done_by_others() -> None:
    nodes = FakeNodes([10] * 6)
    nodes.join("a")
    nodes.join("b")
    nodes.lose("a", at=5)
    done, _ = run(nodes)
    assert sorted(done) == list(range(6))


def test_one_that_hangs_does_not_hold_up_the_end() -> None:
    nodes = FakeNodes([10] * 10)
    nodes.join("a")
    nodes.join("b", slowness=10**6)
    done, scheduler = run(nodes)
    assert sorted(done) == list(range(10))
    assert scheduler.copies >= 1
    assert nodes.now < 200


def test_a_unit_that_two_have_finished_counts_once() -> None:
    nodes = FakeNodes([10] * 6)
    nodes.join("a")
    nodes.join("b", slowness=6)
    done, _ = run(nodes)
    assert sorted(done) == list(range(6))


def test_machines_that_die_one_after_the_other_end_the_run() -> None:
    nodes = FakeNodes([10])
    for i in range(50):
        nodes.join(str(i), at=float(i))
        nodes.lose(str(i), at=i + 0.5)
    with pytest.raises(TokpressError, match=r"machines are lost one after the other.*killed"):
        run(nodes)


@given(st.integers(0, 10**6))
def test_whatever_happens_every_unit_is_done_once(seed: int) -> None:
    rng = random.Random(seed)
    nodes = FakeNodes([rng.randrange(1, 20) for _ in range(rng.randrange(1, 30))])
    nodes.join("last", at=rng.random() * 50)
    for i in range(rng.randrange(6)):
        at = rng.random() * 40
        nodes.join(str(i), at=at, slowness=rng.choice([1, 1, 3, 1000]))
        if rng.random() < 0.5:
            nodes.lose(str(i), at=at + rng.random() * 40)
    done, _ = run(nodes)
    assert sorted(done) == list(range(len(nodes.sizes)))
