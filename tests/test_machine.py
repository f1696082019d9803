"""Cores and memory as this process may use them: never more than it was given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tokpress import machine
from tokpress.machine import available_memory, cpu_sets, usable_cores


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
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_OWN_CGROUP", tmp_path / "own")
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

    @pytest.mark.parametrize("tight", LEVELS)
    def test_the_tightest_of_several_quotas_holds(self, cgroup: Path, tight: str) -> None:
        for level in LEVELS:
            (cgroup / level / "cpu.max").write_text("100000 100000\n" if level == tight else "6400000 100000\n")
        assert usable_cores() == 1

    @pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 2), ("200000 100000", 2), ("320000 100000", 4)])
    def test_a_part_of_a_core_is_used_too(
        self, cgroup: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        monkeypatch.setattr(machine, "_core_of", lambda cpu: ("0", str(cpu)))
        (cgroup / "cpu.max").write_text(quota + "\n")
        assert usable_cores() == cores

    @pytest.mark.parametrize("quota", ["max 100000", "", "?", "100000 0x", "6400000 100000"])
    def test_without_a_quota_are_all(self, cgroup: Path, quota: str) -> None:
        cores = usable_cores()
        (cgroup / "cpu.max").write_text(quota)
        assert usable_cores() == cores

    @pytest.mark.parametrize("level", ["", "slurm", "slurm/job"])
    def test_are_within_the_quota_of_an_old_cgroup(self, cgroup: Path, level: str) -> None:
        cores = usable_cores()
        (cgroup / "own").write_text("3:cpu,cpuacct:/slurm/job\n0::/\n")
        place = cgroup / "cpu" / level
        place.mkdir(parents=True)
        (place / "cpu.cfs_period_us").write_text("100000\n")
        (place / "cpu.cfs_quota_us").write_text("-1\n")
        assert usable_cores() == cores
        (place / "cpu.cfs_quota_us").write_text("100000\n")
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

    @pytest.mark.parametrize("level", ["", "slurm", "slurm/job"])
    def test_is_within_the_limit_of_an_old_cgroup(self, cgroup: Path, level: str) -> None:
        (cgroup / "own").write_text("3:cpu,memory:/slurm/job\n1:name=systemd:/else\n0::/\n")
        place = cgroup / "memory" / level
        place.mkdir(parents=True)
        (place / "memory.limit_in_bytes").write_text("5000000\n")
        (place / "memory.usage_in_bytes").write_text("2000000\n")
        assert available_memory() == 3_000_000

    def test_is_not_negative(self, cgroup: Path) -> None:
        (cgroup / "memory.max").write_text("5000000\n")
        (cgroup / "memory.current").write_text("6000000\n")
        assert available_memory() == 0

    def test_without_a_limit_is_the_machine_s(self, cgroup: Path) -> None:
        (cgroup / "memory.max").write_text("max\n")
        (cgroup / "memory.current").write_text("2000000\n")
        assert available_memory() > 10_000_000


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
