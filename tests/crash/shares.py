"""Several machines and the place that they share: a directory, or a bucket on a server that misbehaves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import msgspec
from s3_server import Fault, S3Server

from crash.building import check_honest, command, contents, finish, start
from crash.forked import Forked, ForkServer
from tokpress.records import MANIFEST, Receipt
from tokpress.storage.base import checksum
from tokpress.store.manifest import encode
from tokpress.store.receipts import StoredReceipt

Node = subprocess.Popen[bytes] | Forked
STAYS = ("run/", "run.json")  # what a frozen process may still leave in a bucket, and what counts for nobody


class Directory:
    def __init__(self, path: Path) -> None:
        self.out = path

    def receipts(self) -> int:
        return len(list(self.out.glob("shards/*.json")))

    def verdicts(self) -> int:
        return len(list(self.out.glob("quarantine/*")))

    def contents(self) -> dict[str, bytes]:
        return contents(self.out)

    def check_honest(self) -> None:
        check_honest(self.out)


class Bucket:
    def __init__(self, server: S3Server, rng: random.Random, *, faults: int = 6) -> None:
        self.out = "s3://bucket/run"
        self._server = server
        server.bucket.objects.clear()
        server.fired.clear()
        methods = ["GET", "PUT", "HEAD", "LIST", "DELETE"]
        server.faults = [
            Fault(
                rng.choice(["503", "409", "lost", "reset"]),
                rng.choice(methods),
                "",
                rng.randint(1, 3),
                rng.randrange(60),
            )
            for _ in range(faults)
        ]

    def _objects(self) -> dict[str, bytes]:
        return {key.removeprefix("run/"): data for key, data in self._server.contents("run/").items()}

    def receipts(self) -> int:
        with self._server.lock:
            keys = list(self._server.bucket.objects)
        return sum(key.startswith("run/shards/") and key.endswith(".json") for key in keys)

    def verdicts(self) -> int:
        with self._server.lock:
            return sum(key.startswith("run/quarantine/") for key in self._server.bucket.objects)

    def contents(self) -> dict[str, bytes]:
        """But for what a process of an ended run left with its last request."""
        files = self._objects()
        manifest = json.loads(files[MANIFEST])
        del manifest["run"], manifest["checksum"]
        mine = self._run_of(MANIFEST)
        files = {key: data for key, data in files.items() if self._run_of(key) in ("", mine)}
        return {key: data for key, data in files.items() if not key.startswith(STAYS)} | {
            MANIFEST: json.dumps(manifest).encode()
        }

    def _run_of(self, key: str) -> str:
        marks = self._server.bucket.objects[f"run/{key}"][1]
        return next((value for name, value in marks.items() if name.lower().endswith("tokpress_run")), "")

    def check_honest(self) -> None:
        objects = self._objects()
        for key, data in objects.items():
            if key.startswith("shards/") and key.endswith(".json"):
                receipt: Receipt = msgspec.json.decode(data, type=StoredReceipt)
                assert data == encode(receipt)
                for extension, entry in receipt.files.items():
                    found = objects[receipt.path(extension)]
                    assert (len(found), checksum(found)) == (entry.bytes, entry.xxh3), receipt.path(extension)


Place = Directory | Bucket


@dataclass
class Cluster:
    """Machines that share a place."""

    inputs: list[Path]
    place: Place
    nodes: int
    start_node: Callable[[list[str]], Node]
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.started: list[Node] = []

    def start(self, *options: str) -> Node:
        arguments = command(self.inputs, self.place.out, "--workers", "1", *self.options, *options)
        self.started.append(self.start_node(arguments))
        return self.started[-1]

    def share(self, index: int) -> Node:
        return self.start("--share", f"{index}/{self.nodes}")

    def wait_for_receipts(self, count: int) -> None:
        """Or for the end of all that was started."""
        while self.place.receipts() < count and any(node.poll() is None for node in self.started):
            sleep(0.002)

    def end(self) -> None:
        for node in self.started:
            signal_all(node, signal.SIGKILL)
            finish(node)


@contextmanager
def ended(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.end()


def forked(server: ForkServer, **environment: str) -> Callable[[list[str]], Node]:
    """Machines that are cheap."""
    return lambda arguments: server.start(arguments[3:], environment)


def real(**environment: str) -> Callable[[list[str]], Node]:
    """Machines as a user starts them, with worker processes."""

    def begin(arguments: list[str]) -> Node:
        return subprocess.Popen(
            arguments,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | environment,
        )

    return begin


def signal_all(node: Node, number: signal.Signals) -> None:
    """Of a machine, not only of its coordinator."""
    if node.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(node.pid, number)


def succeed(node: Node) -> None:
    code, errors = finish(node)
    assert code == 0, errors


def build_alone(inputs: list[Path], out: Path, *options: str, **environment: str) -> dict[str, bytes]:
    succeed(start(inputs, out, "--workers", "1", *options, **environment))
    return contents(out)
