"""What thousands of machines would take: the real scheduler of machines, with machines and a clock that are none.

    python bench/scale_sim.py           minutes, prints Markdown
    python bench/scale_sim.py --quick   64 machines only

A unit is 256 MB of text, more or less; a worker encodes 50 MB a second. With trouble, one machine in a hundred is five
times as slow, and one in fifty is lost somewhere on the way and comes back. The ideal is all bytes at the speed of all
workers, without start or end. What the driver takes is this process's own: the scheduler and its tables, not Ray's.
"""

from __future__ import annotations

import argparse
import heapq
import random
import resource
import statistics
from time import process_time

from tokpress.run.nodes import Finished, Joined, Lost, NodeEvent, NodeScheduler

WORKERS = 16
UNIT_BYTES = 256 * 10**6
WORKER_BYTES_A_SECOND = 50 * 10**6


class SimulatedNodes:
    def __init__(self, sizes: list[int], count: int, rng: random.Random, *, trouble: bool) -> None:
        self.sizes, self.now = sizes, 0.0
        self._events: list[tuple[float, int, NodeEvent]] = []
        self._order = 0
        self._slow: dict[str, float] = {}
        self._free: dict[str, list[float]] = {}
        ideal = sum(sizes) / (count * WORKERS * WORKER_BYTES_A_SECOND)
        for node in map(str, range(count)):
            self._slow[node] = 5.0 if trouble and rng.random() < 0.01 else rng.uniform(0.95, 1.05)
            self._join(node, rng.uniform(0, 5))
            if trouble and rng.random() < 0.02:
                at = rng.uniform(0, ideal)
                self._push(at, Lost(node, "simulated"))
                self._slow[f"{node}b"] = 1.0
                self._join(f"{node}b", at + 60)

    def _join(self, node: str, at: float) -> None:
        self._free[node] = [at] * WORKERS
        self._push(at, Joined(node, WORKERS))

    def _push(self, at: float, event: NodeEvent) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, event))

    def assign(self, node: str, units: list[int]) -> None:
        for unit in units:
            begin = max(heapq.heappop(self._free[node]), self.now)
            end = begin + self.sizes[unit] / WORKER_BYTES_A_SECOND * self._slow[node]
            heapq.heappush(self._free[node], end)
            self._push(end, Finished(node, unit))

    def poll(self, seconds: float) -> list[NodeEvent]:
        """All that happens in the next second, as a driver would hear of it."""
        self.now += seconds
        found: list[NodeEvent] = []
        while self._events and self._events[0][0] <= self.now:
            event = heapq.heappop(self._events)[2]
            if isinstance(event, Lost):
                self._free.pop(event.node)
            if isinstance(event, Joined | Lost) or event.node in self._free:
                found.append(event)
        return found


def simulate(count: int, units: int, seed: int, *, trouble: bool) -> tuple[float, float, int]:
    """Makespan over the ideal, the driver's part of a core, and copies."""
    rng = random.Random(seed)
    sizes = [int(UNIT_BYTES * rng.uniform(0.5, 1.1)) for _ in range(units)]
    nodes = SimulatedNodes(sizes, count, rng, trouble=trouble)
    scheduler = NodeScheduler(nodes, sizes, clock=lambda: nodes.now)
    began = process_time()
    for _ in scheduler.run(range(units)):
        pass
    ideal = sum(sizes) / (count * WORKERS * WORKER_BYTES_A_SECOND)
    return nodes.now / ideal, (process_time() - began) / nodes.now, scheduler.copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--units", type=int, default=10**6)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    print("| machines | units | trouble | makespan / ideal, worst | copies, median | driver, part of a core |")
    print("|---|---|---|---|---|---|")
    for count in (64,) if options.quick else (64, 1_000, 10_000):
        for trouble in (False, True):
            units = min(options.units, count * WORKERS * 100)
            runs = [simulate(count, units, seed, trouble=trouble) for seed in range(options.seeds)]
            worst, driver = (max(run[i] for run in runs) for i in (0, 1))
            copies = statistics.median(run[2] for run in runs)
            print(f"| {count:,} | {units:,} | {trouble} | {worst:.3f} | {copies:,.0f} | {driver:.3f} |", flush=True)
    print(f"\nmost memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()
