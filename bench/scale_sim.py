"""What thousands of machines would take: the real scheduler of machines, with machines and a clock that are none.

    python bench/scale_sim.py                       20 seeds of each row, half an hour; prints Markdown
    python bench/scale_sim.py --seeds 1             a minute and a half
    python bench/scale_sim.py --nodes 64 --seeds 3  seconds

A machine has 16 workers that each encode 50 MB of text a second, as the fast engines do; of 10,000 machines 5 MB, as most
tokenizers' own libraries do, because with a fast engine these would be done before they had all started. A unit is 256 MB of
text, more or less, read from a bucket and written as one shard. Machines join within 5 seconds and differ by 5 %. With
trouble, one in a hundred is five times as slow, and one in fifty is lost on the way and comes back a minute later.

A bucket answers after 30 ms in the median, now and then after a second, and takes only so many requests a second of each
range of keys into which it has divided itself (`--ranges`); what comes beyond that waits. The ideal is all bytes at the
speed of all workers, without start, end or bucket. What the driver takes is this process's own time for the scheduler and
its tables, and a word with a machine counted with what it takes with Ray (`WORD_SECONDS`).
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import resource
import statistics
from array import array
from dataclasses import dataclass
from time import process_time

from tokpress.run.nodes import Finished, Joined, Lost, NodeEvent, NodeScheduler

WORKERS = 16
UNIT_BYTES = 256 * 10**6
SPEEDS = {64: 50 * 10**6, 1_000: 50 * 10**6, 10_000: 5 * 10**6}  # machines -> bytes a second of a worker
TALKS_A_SECOND = 250  # as in run/on_ray.py
WORD_SECONDS = 0.0002  # of the driver's CPU, with Ray; assumed
LATENCY_SECONDS = 0.03

# Of one unit with one shard of 128 MB of ids. Reading: ranges of 8 MB. Writing: ids in parts of 16 MB, with two more
# requests to begin and join them; ends, positions, receipt, and what the machine says of itself.
GETS = UNIT_BYTES // (8 * 1024**2) + 1 + 12  # ranges, the receipt that is not there, sizes compared, verdicts, the run
PUTS = 128 * 10**6 // (16 * 1024**2) + 2 + 4
GET_LIMIT, PUT_LIMIT = 5_500, 3_500  # a second, of each range of keys
GET_DOLLARS, PUT_DOLLARS = 0.4e-6, 5e-6


@dataclass(frozen=True, slots=True)
class World:
    nodes: int
    units: int
    trouble: bool
    speed: int  # bytes a second, of a worker
    ranges: int  # of keys; 0: a file system without such limits


class Bucket:
    """Requests wait for their turn: what is admitted now is paid for by those that come later."""

    def __init__(self, world: World) -> None:
        self.requests = 0
        self._rates = (GET_LIMIT * world.ranges, PUT_LIMIT * world.ranges)
        self._free = [0.0, 0.0]

    def wait(self, kind: int, count: int, begin: float, now: float) -> float:
        """Seconds from `begin` on until the last of these requests is admitted. In which order the bucket takes requests
        that are far ahead is not modelled: all that were assigned by now stand in one line."""
        self.requests += count
        if not self._rates[kind]:
            return 0.0
        self._free[kind] = max(self._free[kind], now) + count / self._rates[kind]
        return max(self._free[kind] - begin, 0.0)


class SimulatedNodes:
    def __init__(self, world: World, sizes: array[int], rng: random.Random) -> None:
        self.sizes, self.now = sizes, 0.0
        self.words = 0
        self.bucket = Bucket(world)
        self._rng = rng
        self._events: list[tuple[float, int, NodeEvent]] = []
        self._order = 0
        self._slow: dict[str, float] = {}
        self._free: dict[str, list[float]] = {}
        self._told: dict[str, list[NodeEvent]] = {}  # until the next word
        self._words: list[tuple[float, str]] = []
        self._talks: dict[str, float] = {}  # when the next word with a machine is
        self._speed = world.speed
        ideal = sum(sizes) / (world.nodes * WORKERS * world.speed)
        for node in map(str, range(world.nodes)):
            self._join(
                node, rng.uniform(0, 5), 5.0 if world.trouble and rng.random() < 0.01 else rng.uniform(0.95, 1.05)
            )
            if world.trouble and rng.random() < 0.02:
                at = rng.uniform(0, ideal)
                self._push(at, Lost(node, "simulated"))
                self._join(f"{node}b", at + 60, 1.0)

    @property
    def pause(self) -> float:
        return len(self._free) / TALKS_A_SECOND if len(self._free) > TALKS_A_SECOND else 0.0

    def _join(self, node: str, at: float, slowness: float) -> None:
        self._slow[node] = slowness
        self._push(at, Joined(node, WORKERS))

    def _push(self, at: float, event: NodeEvent) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, event))

    def assign(self, node: str, units: list[int]) -> None:
        """They reach the machine with the word in which it spoke."""
        workers = self._free.get(node)
        if workers is None:
            return
        for unit in units:
            begin = max(workers[0], self.now)
            latency = LATENCY_SECONDS * (self._rng.expovariate(1.0) + (30.0 if self._rng.random() < 0.001 else 0.3))
            waited = self.bucket.wait(0, GETS, begin, self.now)
            end = begin + latency + max(self.sizes[unit] / self._speed * self._slow[node], waited)
            heapq.heapreplace(workers, end)
            # The shard is written while the next unit is read; only the receipt tells that it is done.
            self._push(end + latency + self.bucket.wait(1, PUTS, end, self.now), Finished(node, unit))

    def poll(self, seconds: float) -> list[NodeEvent]:
        """What the driver hears until then: of each machine all that it has to tell, once in `pause` seconds."""
        self.now += min(seconds, 0.5)
        found: list[NodeEvent] = []
        while self._events and self._events[0][0] <= self.now:
            event = heapq.heappop(self._events)[2]
            if isinstance(event, Lost):
                self._free.pop(event.node)
                self._told.pop(event.node, None)
                found.append(event)
            elif isinstance(event, Joined):
                self._free[event.node] = [self.now] * WORKERS
                self._told[event.node] = []
                self._talks[event.node] = 0.0
                heapq.heappush(self._words, (self.now, event.node))
                found.append(event)
            elif event.node in self._free:
                self._told[event.node].append(event)
        while self._words and self._words[0][0] <= self.now:
            node = heapq.heappop(self._words)[1]
            if node in self._free:
                self.words += 1
                found += self._told[node]
                self._told[node] = []
                heapq.heappush(self._words, (self.now + max(self.pause, 0.5), node))
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    makespan: float  # over the ideal
    seconds: float
    driver: float  # part of a core
    copies: int
    requests: int


def simulate(world: World, seed: int) -> Outcome:
    rng = random.Random(seed)
    sizes = array("q", (int(UNIT_BYTES * rng.uniform(0.5, 1.1)) for _ in range(world.units)))
    nodes = SimulatedNodes(world, sizes, rng)
    scheduler = NodeScheduler(nodes, sizes, clock=lambda: nodes.now)
    outside = 0.0  # of the process's time: what is simulated, not the scheduler
    poll, assign = nodes.poll, nodes.assign

    def timed_poll(seconds: float) -> list[NodeEvent]:
        nonlocal outside
        began = process_time()
        found = poll(seconds)
        outside += process_time() - began
        return found

    def timed_assign(node: str, units: list[int]) -> None:
        nonlocal outside
        began = process_time()
        assign(node, units)
        outside += process_time() - began

    nodes.poll, nodes.assign = timed_poll, timed_assign  # type: ignore[method-assign]
    began = process_time()
    for _ in scheduler.run(range(world.units)):
        pass
    spent = process_time() - began - outside + nodes.words * WORD_SECONDS
    ideal = sum(sizes) / (world.nodes * WORKERS * world.speed)
    return Outcome(nodes.now / ideal, nodes.now, spent / nodes.now, scheduler.copies, nodes.bucket.requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--units", type=int, default=10**6)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--ranges", type=int, default=64, help="of keys of the bucket; 0: a file system")
    options = parser.parse_args()
    print(
        "| machines | units | trouble | seconds | makespan / ideal, median and worst | copies, median | driver, of a core |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in options.nodes or SPEEDS:
        for trouble in (False, True):
            speed = SPEEDS.get(count, max(SPEEDS.values()))
            world = World(count, min(options.units, count * WORKERS * 100), trouble, speed, options.ranges)
            gc.freeze()
            runs = [simulate(world, seed) for seed in range(options.seeds)]
            makespans = [run.makespan for run in runs]
            print(
                f"| {count:,} | {world.units:,} | {'yes' if trouble else 'no'} "
                f"| {statistics.median(run.seconds for run in runs):,.0f} "
                f"| {statistics.median(makespans):.3f}, {max(makespans):.3f} "
                f"| {statistics.median(run.copies for run in runs):,.0f} | {max(run.driver for run in runs):.3f} |",
                flush=True,
            )
    gets, puts = GETS * options.units, PUTS * options.units
    print(f"\nrequests of {options.units:,} units: {gets / 1e6:,.0f} M to read, {puts / 1e6:,.0f} M to write,", end=" ")
    print(f"{gets * GET_DOLLARS + puts * PUT_DOLLARS:,.0f} dollars")
    print(f"most memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()
