"""What a run may use: never more cores or bytes than it was given, and always enough to go on with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.config import parse_size
from tokpress.errors import UsageError
from tokpress.run import budget
from tokpress.run.budget import (
    DEFAULT_SHARE,
    MAX_BATCH_BYTES,
    MIN_BATCH_BYTES,
    ORDINARY_BATCHES,
    PARENT_BYTES,
    READ_COST,
    available_memory,
    cpu_sets,
    plan_budget,
    usable_cores,
)

COST = ORDINARY_BATCHES * (READ_COST + 4)  # bytes for each byte of a batch, with an engine that takes 4


@pytest.fixture
def one_cpu() -> Iterator[int]:
    """This thread, allowed on one CPU only."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield min(allowed)
    os.sched_setaffinity(0, allowed)


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the limits stand: those of a job, inside a slice, inside the machine."""
    (tmp_path / "own").write_text("1:name=systemd:/else\n0::/slice/job\n")
    (tmp_path / "slice" / "job").mkdir(parents=True)
    monkeypatch.setattr(budget, "_CGROUP", tmp_path)
    monkeypatch.setattr(budget, "_OWN_CGROUP", tmp_path / "own")
    return tmp_path


LEVELS = ["", "slice", "slice/job"]


class TestCores:
    def test_are_no_more_than_this_process_may_run_on(self) -> None:
        assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))

    def test_are_one_on_one_cpu(self, one_cpu: int) -> None:
        assert usable_cores() == 1

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("quota", ["50000 100000", "100000 100000", "1000 100000"])
    def test_are_within_the_cgroup_s_quota(self, cgroup: Path, level: str, quota: str) -> None:
        (cgroup / level / "cpu.max").write_text(quota + "\n")
        assert usable_cores() == 1

    @pytest.mark.parametrize("quota", ["max 100000", "", "?", "100000 0x", "6400000 100000"])
    def test_without_a_quota_are_all(self, cgroup: Path, quota: str) -> None:
        cores = usable_cores()
        (cgroup / "cpu.max").write_text(quota)
        assert usable_cores() == cores

    def test_are_within_the_quota_of_an_old_cgroup(self, cgroup: Path) -> None:
        cores = usable_cores()
        (cgroup / "cpu").mkdir()
        (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
        (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
        assert usable_cores() == cores
        (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
        assert usable_cores() == 1

    def test_without_a_cgroup_are_all(self, cgroup: Path) -> None:
        (cgroup / "own").unlink()
        assert usable_cores() >= 1


class TestMemory:
    def test_is_what_is_available(self, cgroup: Path) -> None:
        assert 0 < available_memory() <= psutil.virtual_memory().total

    @pytest.mark.parametrize("level", LEVELS)
    def test_is_within_the_cgroup_s_limit(self, cgroup: Path, level: str) -> None:
        (cgroup / level / "memory.max").write_text("5000000\n")
        (cgroup / level / "memory.current").write_text("2000000\n")
        assert available_memory() == 3_000_000

    def test_is_within_the_limit_of_an_old_cgroup(self, cgroup: Path) -> None:
        (cgroup / "memory").mkdir()
        (cgroup / "memory" / "memory.limit_in_bytes").write_text("5000000\n")
        (cgroup / "memory" / "memory.usage_in_bytes").write_text("2000000\n")
        assert available_memory() == 3_000_000

    def test_is_not_negative(self, cgroup: Path) -> None:
        (cgroup / "memory.max").write_text("5000000\n")
        (cgroup / "memory.current").write_text("6000000\n")
        assert available_memory() == 0

    def test_without_a_limit_is_the_machine_s(self, cgroup: Path) -> None:
        (cgroup / "memory.max").write_text("max\n")
        (cgroup / "memory.current").write_text("2000000\n")
        assert available_memory() > 10_000_000


megabytes = st.integers(1, 200_000).map(lambda count: count * 10**6)


class TestBudget:
    @given(
        memory=megabytes,
        workers=st.none() | st.integers(1, 300),
        footprint=st.integers(10**6, 20 * 10**9),
        units=st.integers(0, 1000),
    )
    def test_is_never_exceeded_and_always_enough(
        self, memory: int, workers: int | None, footprint: int, units: int
    ) -> None:
        try:
            plan = plan_budget(memory, workers, footprint, units)
        except UsageError as error:
            needed = re.search(r"needs (\S+)\. Give it that much", str(error))
            assert needed is not None
            assert parse_size(needed[1]) > memory
            assert plan_budget(parse_size(needed[1]), workers, footprint, units).workers == 1  # as it says
            return
        assert plan.memory_bytes == memory
        assert 1 <= plan.workers <= min(workers or usable_cores(), max(units, 1))
        assert MIN_BATCH_BYTES <= plan.batch_bytes <= MAX_BATCH_BYTES
        assert footprint + COST * plan.batch_bytes <= plan.worker_bytes
        assert PARENT_BYTES + plan.workers * plan.worker_bytes <= memory
        room, others = plan.room, plan.workers - 1
        assert room.ordinary <= room.share <= room.most
        assert PARENT_BYTES + plan.workers * (footprint + room.share) <= memory
        assert PARENT_BYTES + plan.workers * footprint + room.most + others * room.ordinary <= memory

    @given(memory=megabytes, more=megabytes, footprint=st.integers(10**6, 10**9))
    def test_more_memory_never_gives_fewer_workers(self, memory: int, more: int, footprint: int) -> None:
        needed = PARENT_BYTES + footprint + COST * MIN_BATCH_BYTES
        less = plan_budget(needed + memory, 64, footprint, 64)
        assert plan_budget(needed + memory + more, 64, footprint, 64).workers >= less.workers

    def test_a_large_tokenizer_gets_fewer_workers(self) -> None:
        assert plan_budget(4 * 10**9, 8, 10**9, 100).workers == 3
        assert plan_budget(4 * 10**9, 8, 10**8, 100).workers == 8

    def test_without_memory_given_is_a_share_of_what_is_available(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(budget, "available_memory", lambda: 10**10)
        assert plan_budget(None, 2, 10**8, 2).memory_bytes == int(DEFAULT_SHARE * 10**10)

    def test_without_workers_given_is_a_worker_for_each_core(self) -> None:
        assert plan_budget(10**12, None, 10**8, 1000).workers == usable_cores()


class TestPinning:
    def test_none_is_none(self) -> None:
        assert cpu_sets("none") == []

    @pytest.mark.parametrize("pin", ["cores", "numa"])
    def test_gives_every_cpu_once(self, pin: str) -> None:
        sets = cpu_sets(pin)
        if not sets:
            pytest.skip("this machine does not say which NUMA nodes it has")
        assert sorted(cpu for cpus in sets for cpu in cpus) == sorted(os.sched_getaffinity(0))

    def test_a_core_has_all_its_threads(self) -> None:
        assert len(cpu_sets("cores")) >= usable_cores()

    @pytest.mark.parametrize("pin", ["cores", "numa"])
    def test_keeps_to_the_cpus_that_are_allowed(self, pin: str, one_cpu: int) -> None:
        assert cpu_sets(pin) in ([{one_cpu}], [])
