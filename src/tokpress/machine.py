"""The machine as this process may use it: cores, memory, and the limits of cgroups and affinity."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

import psutil

from tokpress.errors import UsageError

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")  # says where below it this process stands

_MAPS_TO_SPARE = 16  # between the last map that could be made and the limit


def usable_cores() -> int:
    """Physical cores that this process may run on, within its affinity and its cgroup's quota."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return psutil.cpu_count(logical=False) or 1
    cores = {_core_of(cpu) for cpu in os.sched_getaffinity(0)}
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
    for old in _cgroups("cpu"):
        with suppress(OSError, ValueError):  # -1 is no limit
            quotas.append(int((old / "cpu.cfs_quota_us").read_text()) / int((old / "cpu.cfs_period_us").read_text()))
    return min((quota for quota in quotas if quota > 0), default=None)


def _cgroups(controller: str = "") -> list[Path]:
    """This process's cgroup and those around it: the limits of all of them hold. In version 1 each controller has a tree of
    its own; version 2 has one, without a name."""
    root = _CGROUP / controller
    try:
        fields = [line.split(":", 2) for line in _OWN_CGROUP.read_text().splitlines()]
        own = next(path for _, controllers, path in fields if controller in controllers.split(","))
    except (OSError, ValueError, StopIteration):
        return [root]
    inner = root / own.strip("/")
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]


def available_memory() -> int:
    """Bytes that can be had without pushing others out, within the cgroup's limit."""
    available: int = psutil.virtual_memory().available
    for cgroup in _cgroups():
        with suppress(OSError, ValueError):  # no cgroup, or no limit
            limit, used = (cgroup / "memory.max").read_text(), (cgroup / "memory.current").read_text()
            available = min(available, int(limit) - int(used))
    for old in _cgroups("memory"):
        with suppress(OSError, ValueError):  # no limit is a very large one
            limit, used = (old / "memory.limit_in_bytes").read_text(), (old / "memory.usage_in_bytes").read_text()
            available = min(available, int(limit) - int(used))
    return max(available, 0)


def map_limit() -> int | None:
    """How many maps a process may have, if this one has all of them."""
    try:
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
        with Path("/proc/self/maps").open("rb") as maps:
            used = sum(1 for _ in maps)
    except (OSError, ValueError):
        return None
    return limit if used >= limit - _MAPS_TO_SPARE else None


def cpu_sets(pin: str) -> list[set[int]]:
    """The CPUs of each worker in turn: one core, or one NUMA node; empty if workers are not pinned."""
    if pin == "none":
        return []
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError(f"--pin {pin} needs Linux: no other system lets a process choose its cores. Leave --pin out.")
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
