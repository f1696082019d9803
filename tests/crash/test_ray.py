"""A Ray cluster writes the store that one machine writes: a machine killed, the driver killed, a raylet frozen.

Told where Ray is installed (`make ray`, which has an environment of its own): 50 seeds of each, one without
TOKPRESS_RAY_EVERYTHING. The cluster is started once; a machine that a story took is replaced by a new one.
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
from tokpress.run import events
from tokpress.run.event_log import read_events

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="make ray: Ray is not installed"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

EVERYTHING = os.environ.get("TOKPRESS_RAY_EVERYTHING") == "1"
FIRST_SEED = int(os.environ.get("TOKPRESS_RAY_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("TOKPRESS_RAY_SEEDS", "50" if EVERYTHING else "1")))
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
    return write_corpus(tmp_path_factory.mktemp("ray") / "in", 0, texts=240)


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("ray") / "alone"
    code, errors = finish(start(corpus, out, *OPTIONS))
    assert code == 0, errors
    return contents(out)


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """Of a cluster: it does no work."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield made
        made.shutdown()


def runs(node: Any) -> bool:
    return all(each.process.poll() is None for each in node.all_processes.get("raylet", [])) and bool(
        node.all_processes
    )


@pytest.fixture
def cluster(head: Any) -> Any:
    """With three machines that work, and none that was declared dead before."""
    alive = [node for node in head.list_all_nodes() if node is not head.head_node and runs(node)]
    for node in alive[NODES:]:
        head.remove_node(node, allow_graceful=False)
    head.workers = alive[:NODES]
    while len(head.workers) < NODES:
        head.workers.append(head.add_node(num_cpus=1))
    return head


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
    """After each number of receipts, and a little later."""
    rng = random.Random(seed)
    driver = drive(cluster, corpus, tmp_path / "store")
    wait_for_receipts(tmp_path / "store", seed, driver)
    sleep(rng.choice([0, rng.random() * 0.05]))
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


def test_it_tells_what_one_machine_tells(cluster: Any, corpus: list[Path], tmp_path: Path) -> None:
    """The events of a run, but for how often and by whom."""
    told = {}
    for name, options in {"ray": ("--executor", "ray", "--address", cluster.address), "local": ()}.items():
        log = tmp_path / f"{name}.jsonl"
        code, errors = finish(start(corpus, tmp_path / name, *OPTIONS, *options, "--events", str(log)), 300)
        assert code == 0, errors
        told[name] = list(read_events(log))
    kinds = {name: {type(event) for event in each} for name, each in told.items()}
    assert kinds["ray"] == kinds["local"]
    for kind in (events.TokenizerLoaded, events.Proved, events.FirstDocument, events.Finished):
        one, other = ([event for event in told[name] if isinstance(event, kind)] for name in ("ray", "local"))
        assert (len(one), len(other)) == (1, 1)
    units = {
        name: {
            event.unit: (event.docs, event.tokens, event.shards) for event in each if isinstance(event, events.UnitDone)
        }
        for name, each in told.items()
    }
    assert units["ray"] == units["local"]
    manifests = {name: tokpress.open(tmp_path / name).manifest.run for name in told}
    assert manifests["ray"].stage_seconds.keys() == manifests["local"].stage_seconds.keys()
    assert manifests["ray"].tokenizer == manifests["local"].tokenizer
    views = [event.workers for event in told["ray"] if isinstance(event, events.Workers) and event.workers]
    assert views
    assert all(isinstance(view.node, str) for workers in views for view in workers)


def test_the_example_is_one_that_ray_takes() -> None:
    """The clouds cannot be had here; the stories above run its command."""
    import yaml  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = (Path(__file__).parents[2] / "examples" / "ray.yaml").read_text()
    validate_config(prepare_config(yaml.safe_load(text)))
    with pytest.raises(Exception, match="max_wrkers"):
        validate_config(prepare_config(yaml.safe_load(text.replace("max_workers: 64\navail", "max_wrkers: 64\navail"))))
