"""What a run may use: cores and bytes.

In: the machine as this process may use it, `--memory`, `--workers`, and what a worker was measured to hold. Out: how many
workers, and how much text each takes on at a time. None of it changes the output.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tokpress.errors import UsageError
from tokpress.run.gate import Room

PARENT_BYTES = 150 * 10**6  # the coordinating process: imports, receipts, the view
READ_COST = (
    10  # bytes held at the worst for each of a batch (line, string, text, framed ids), beside what encoding takes
)
ORDINARY_BATCHES = 2  # times its size a batch may have, the record that fills it included
ORDINARY_PART = 4  # a worker's share divided by this is for such batches; the rest is for records far larger than those
MIN_BATCH_BYTES = 256 * 1024
MAX_BATCH_BYTES = 4 * 1024**2
DEFAULT_SHARE = 0.6  # of the memory that is available
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")  # says where below it this process stands


@dataclass(frozen=True, slots=True)
class Budget:
    """How a run uses what it may use."""

    memory_bytes: int
    workers: int
    batch_bytes: int
    worker_bytes: int  # what one worker may hold
    room: Room  # what of it is for text


def usable_cores() -> int:
    """Physical cores that this process may run on, within its affinity and its cgroup's quota."""
    allowed = os.sched_getaffinity(0)
    cores = {_core_of(cpu) for cpu in allowed}
    quota = _cpu_quota()
    return max(min(len(cores), math.ceil(quota) if quota else len(cores)), 1)


def _core_of(cpu: int) -> tuple[str, str]:
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (topology / "physical_package_id").read_text(), (topology / "core_id").read_text()
    except OSError:
        return "", str(cpu)


def _cpu_quota() -> float | None:
    quotas = []
    for cgroup in _cgroups():
        with suppress(OSError, ValueError):  # no cgroup, or no limit
            quota, period = (cgroup / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
    with suppress(OSError, ValueError):  # version 1 of cgroups; -1 is no limit
        old = _CGROUP / "cpu"
        quotas.append(int((old / "cpu.cfs_quota_us").read_text()) / int((old / "cpu.cfs_period_us").read_text()))
    return min((quota for quota in quotas if quota > 0), default=None)


def _cgroups() -> list[Path]:
    """This process's cgroup and those around it: the limits of all of them hold."""
    try:
        own = next(line for line in _OWN_CGROUP.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return [_CGROUP]
    inner = _CGROUP / own.removeprefix("0::").strip("/")
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(_CGROUP))]


def available_memory() -> int:
    """Bytes that can be had without pushing others out, within the cgroup's limit."""
    available: int = psutil.virtual_memory().available
    for cgroup in _cgroups():
        with suppress(OSError, ValueError):  # no cgroup, or no limit
            limit, used = (cgroup / "memory.max").read_text(), (cgroup / "memory.current").read_text()
            available = min(available, int(limit) - int(used))
    with suppress(OSError, ValueError):  # version 1 of cgroups; no limit is a very large one
        old = _CGROUP / "memory"
        limit, used = (old / "memory.limit_in_bytes").read_text(), (old / "memory.usage_in_bytes").read_text()
        available = min(available, int(limit) - int(used))
    return max(available, 0)


def callers_memory() -> int:
    """What this process holds beyond what coordinating a run takes: its caller's, and none of the run's."""
    held: int = psutil.Process().memory_info().rss
    return max(held - PARENT_BYTES, 0)


def plan_budget(
    memory: int | None, workers: int | None, footprint: int, units: int, memory_per_byte: int = 4
) -> Budget:
    """Workers and batches for a worker that holds `footprint` bytes before it has read anything, and takes
    `memory_per_byte` of text to encode it."""
    total = memory or int(available_memory() * DEFAULT_SHARE)
    wanted = min(workers or usable_cores(), max(units, 1))
    cost = ORDINARY_BATCHES * (READ_COST + memory_per_byte)
    least = footprint + cost * MIN_BATCH_BYTES
    if total < PARENT_BYTES + least:
        raise UsageError(
            f"--memory {total // 10**6}MB is not enough: one worker with this tokenizer needs "
            f"{math.ceil((PARENT_BYTES + least) / 1e6)}MB. Give it that much."
        )
    count = min(wanted, (total - PARENT_BYTES) // least)
    each = (total - PARENT_BYTES) // count
    batch = min(max((each - footprint) // ORDINARY_PART // cost, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
    most = total - PARENT_BYTES - count * footprint - (count - 1) * cost * batch
    room = Room(ordinary=cost * batch, share=each - footprint, most=most, budget=total)
    return Budget(memory_bytes=total, workers=count, batch_bytes=batch, worker_bytes=each, room=room)


def cpu_sets(pin: str) -> list[set[int]]:
    """The CPUs of each worker in turn: one core, or one NUMA node; empty if workers are not pinned."""
    allowed = os.sched_getaffinity(0)
    if pin == "cores":
        cores: dict[tuple[str, str], set[int]] = {}
        for cpu in sorted(allowed):
            cores.setdefault(_core_of(cpu), set()).add(cpu)
        return list(cores.values())
    if pin == "numa":
        nodes = []
        for node in sorted(Path("/sys/devices/system/node").glob("node[0-9]*")):
            cpus = {int(path.name.removeprefix("cpu")) for path in node.glob("cpu[0-9]*")} & allowed
            if cpus:
                nodes.append(cpus)
        return nodes
    return []
