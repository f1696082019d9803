"""A Ray cluster writes the store that one machine writes: a machine killed, the driver killed, a raylet frozen.

Told where Ray is installed (`make ray`, which has an environment of its own); one seed of each in `make test`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

import psutil
import pytest

import tokpress
from crash.building import check_honest, contents, finish, start, write_corpus

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="make ray: Ray is not installed"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

EVERYTHING = os.environ.get("TOKPRESS_RAY_EVERYTHING") == "1"
FIRST_SEED = int(os.environ.get("TOKPRESS_RAY_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + (50 if EVERYTHING else 1))
NODES = 3
OPTIONS = ("--val-fraction", "0.3", "--workers", "1")
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",  # a machine that is silent for some seconds is lost
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("ray") / "in", 0)


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("ray") / "alone"
    code, errors = finish(start(corpus, out, *OPTIONS))
    assert code == 0, errors
    return contents(out)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that does no work, and three machines that do."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(NODES)]
    yield made
    made.shutdown()


def drive(cluster: Any, corpus: list[Path], out: Path) -> subprocess.Popen[bytes]:
    return start(corpus, out, *OPTIONS, "--executor", "ray", "--address", cluster.address)


def wait_for_receipts(out: Path, count: int, driver: subprocess.Popen[bytes]) -> None:
    while len(list(out.glob("shards/*.json"))) < count and driver.poll() is None:
        sleep(0.005)


def succeed(driver: subprocess.Popen[bytes], out: Path, expected: dict[str, bytes]) -> None:
    code, errors = finish(driver, 300)
    assert code == 0, errors
    assert contents(out) == expected
    assert tokpress.open(out).verify().ok


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_is_killed(
    seed: int, cluster: Any, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    driver = drive(cluster, corpus, tmp_path / "store")
    wait_for_receipts(tmp_path / "store", rng.randrange(0, 60), driver)
    cluster.remove_node(rng.choice(cluster.workers), allow_graceful=False)
    check_honest(tmp_path / "store")
    succeed(driver, tmp_path / "store", expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_driver_is_killed_and_the_same_command_goes_on(
    seed: int, cluster: Any, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    driver = drive(cluster, corpus, tmp_path / "store")
    wait_for_receipts(tmp_path / "store", rng.randrange(1, 60), driver)
    os.killpg(driver.pid, signal.SIGKILL)
    finish(driver)
    check_honest(tmp_path / "store")
    succeed(drive(cluster, corpus, tmp_path / "store"), tmp_path / "store", expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_is_frozen_declared_dead_and_goes_on(
    seed: int, cluster: Any, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    out = tmp_path / "store"
    driver = drive(cluster, corpus, out)
    wait_for_receipts(out, rng.randrange(1, 30), driver)
    raylet = psutil.Process(rng.choice(cluster.workers).all_processes["raylet"][0].process.pid)
    frozen = [raylet, *raylet.children(recursive=True)]
    for process in frozen:
        process.suspend()
    succeed(driver, out, expected)
    for process in frozen:
        process.resume()
    psutil.wait_procs(frozen, timeout=20)  # it finds that it was declared dead
    assert contents(out) == expected
