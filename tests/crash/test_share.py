"""Several machines write one store, and whatever happens to them, it is the store that one machine writes.

Processes with a session of their own stand for machines, a directory for their file system. A few seeds of each story are
told in `make test`, a hundred in `make share`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

import tokpress
from crash.building import check_honest, contents, finish, start, write_corpus
from crash.poison import poisoned

EVERYTHING = os.environ.get("TOKPRESS_SHARE_EVERYTHING") == "1"
FIRST_SEED = int(os.environ.get("TOKPRESS_SHARE_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + (100 if EVERYTHING else 1))
NODES = 6 if EVERYTHING else 2
long_story = pytest.mark.skipif(not EVERYTHING, reason="make share")
INTERRUPTED = 130

Node = subprocess.Popen[bytes]


class Cluster:
    """Machines that share a directory."""

    def __init__(self, inputs: list[Path], out: Path, *options: str, **environment: str) -> None:
        self.inputs, self.out, self.options, self.environment = inputs, out, options, environment
        self.started: list[Node] = []

    def start(self, *options: str) -> Node:
        node = start(self.inputs, self.out, "--workers", "2", *self.options, *options, **self.environment)
        self.started.append(node)
        return node

    def share(self, index: int) -> Node:
        return self.start("--share", f"{index}/{NODES}")

    def wait_for_receipts(self, count: int) -> None:
        """Or for the end of all that was started."""
        while len(list(self.out.glob("shards/*.json"))) < count and any(node.poll() is None for node in self.started):
            sleep(0.005)

    def end(self) -> None:
        for node in self.started:
            signal_all(node, signal.SIGKILL)
            finish(node)


def signal_all(node: Node, number: signal.Signals) -> None:
    """Of a machine, not only of its coordinator."""
    with suppress(ProcessLookupError):
        os.killpg(node.pid, number)


def succeed(node: Node) -> None:
    code, errors = finish(node)
    assert code == 0, errors


@contextmanager
def cluster(inputs: list[Path], out: Path, *options: str, **environment: str) -> Iterator[Cluster]:
    nodes = Cluster(inputs, out, *options, **environment)
    try:
        yield nodes
    finally:
        nodes.end()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("share") / "in", 0)


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("share") / "alone"
    succeed(start(corpus, out, "--workers", "1", "--val-fraction", "0.3"))
    return contents(out)


Story = Callable[[Cluster, list[Node], random.Random], None]


def killed_and_started_again(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        nodes.wait_for_receipts(rng.randrange(40))
        index = rng.randrange(NODES)
        signal_all(shares[index], signal.SIGKILL)
        finish(shares[index])
        check_honest(nodes.out)
        shares[index] = nodes.share(index)


def frozen_and_replaced_by_a_twin(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    index = rng.randrange(NODES)
    nodes.wait_for_receipts(rng.randrange(40))
    frozen = shares[index]
    signal_all(frozen, signal.SIGSTOP)
    shares[index] = nodes.share(index)
    if rng.random() < 0.5:  # the twin ends before the first goes on
        succeed(shares[index])
    signal_all(frozen, signal.SIGCONT)
    succeed(frozen)


def told_to_end(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    index = rng.randrange(NODES)
    nodes.wait_for_receipts(rng.randrange(40))
    shares[index].send_signal(signal.SIGTERM)
    code, errors = finish(shares[index])
    assert code in (0, INTERRUPTED), errors
    if code:
        assert "go on with the same command" in errors
    check_honest(nodes.out)
    shares[index] = nodes.share(index)


def one_that_never_ran(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    lost = shares.pop(rng.randrange(NODES))
    nodes.wait_for_receipts(rng.randrange(20))
    signal_all(lost, signal.SIGKILL)


STORIES: list[Story] = [killed_and_started_again, frozen_and_replaced_by_a_twin, told_to_end]
if EVERYTHING:
    STORIES.append(one_that_never_ran)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_store_is_the_same(
    story: Story, seed: int, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with cluster(corpus, tmp_path / "store", "--val-fraction", "0.3") as nodes:
        shares = [nodes.share(index) for index in range(NODES)]
        story(nodes, shares, rng)
        for share in shares:
            succeed(share)
        if story is not one_that_never_ran:
            status = json.loads(
                subprocess.check_output([sys.executable, "-m", "tokpress", "status", nodes.out, "--json"])
            )
            assert status["left"] == []
            assert {each["share"] for each in status["attempts"]} == {f"{i}/{NODES}" for i in range(NODES)}
        sealers = [nodes.start() for _ in range(2)]  # one of them is first
        for sealer in sealers:
            succeed(sealer)
        assert contents(nodes.out) == expected
        assert tokpress.open(nodes.out).verify().ok


@long_story
@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_goes_on_after_the_end_changes_no_byte(
    seed: int, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with cluster(corpus, tmp_path / "store", "--val-fraction", "0.3") as nodes:
        late = nodes.share(0)
        nodes.wait_for_receipts(rng.randrange(1, 12))
        signal_all(late, signal.SIGSTOP)
        succeed(nodes.start())
        assert contents(nodes.out) == expected
        signal_all(late, signal.SIGCONT)
        finish(late)
        assert contents(nodes.out) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_overwritten_while_one_of_the_old_run_is_alive(
    seed: int, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    out = tmp_path / "store"
    with cluster(corpus, out, "--shard-size", "9kB") as old, cluster(corpus, out, "--val-fraction", "0.3") as new:
        zombie = old.share(0)
        old.wait_for_receipts(rng.randrange(1, 12))
        signal_all(zombie, signal.SIGSTOP)
        again = new.start("--overwrite")
        if rng.random() < 0.5:
            new.wait_for_receipts(1)
        else:
            succeed(again)
        signal_all(zombie, signal.SIGCONT)
        finish(zombie)
        succeed(again)
        assert contents(out) == expected


@long_story
@pytest.mark.parametrize("seed", SEEDS)
def test_a_poisonous_document_whose_machine_is_killed(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    source = tmp_path / "corpus.jsonl"
    bad = {rng.randrange(100, 900): "segfault", rng.randrange(1100, 1900): "exit"}
    texts = [f"!!{bad[i]} {i}" if i in bad else f"document {i} " * 4 for i in range(2000)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    environment = poisoned(tmp_path)
    succeed(start([source], tmp_path / "alone", "--workers", "2", **environment))
    with cluster([source], tmp_path / "store", **environment) as nodes:
        shares = [nodes.share(index) for index in range(NODES)]
        until = monotonic() + rng.random() * 4
        while monotonic() < until and not list(nodes.out.glob("quarantine/*")):
            sleep(0.005)
        index = rng.randrange(NODES)
        signal_all(shares[index], signal.SIGKILL)
        finish(shares[index])
        shares[index] = nodes.share(index)
        for share in shares:
            succeed(share)
        succeed(nodes.start())
        assert contents(nodes.out) == contents(tmp_path / "alone")
    store = tokpress.open(tmp_path / "store")
    assert store.manifest.rejects == {"crashed-tokenizer": 2}


class TestRefused:
    @pytest.fixture
    def begun(self, corpus: list[Path], tmp_path: Path) -> Path:
        succeed(start(corpus, tmp_path / "store", "--share", f"0/{NODES}"))
        return tmp_path / "store"

    def test_another_version_of_what_makes_bytes(self, corpus: list[Path], begun: Path, tmp_path: Path) -> None:
        (tmp_path / "other" / "tokenizers-0.0.1.dist-info").mkdir(parents=True)
        (tmp_path / "other" / "tokenizers-0.0.1.dist-info" / "METADATA").write_text(
            "Name: tokenizers\nVersion: 0.0.1\n"
        )
        code, errors = finish(start(corpus, begun, "--share", f"1/{NODES}", PYTHONPATH=str(tmp_path / "other")))
        assert code == 2
        assert "versions.tokenizers: was " in errors
        assert "is 0.0.1" in errors

    def test_other_options(self, corpus: list[Path], begun: Path) -> None:
        code, errors = finish(start(corpus, begun, "--share", f"1/{NODES}", "--shard-size", "7kB"))
        assert code == 2
        assert "options.shard_bytes" in errors

    def test_a_receipt_that_says_otherwise(self, corpus: list[Path], begun: Path, expected: dict[str, bytes]) -> None:
        code, errors = finish(start(corpus, begun, "--share", f"1/{NODES}"))
        assert code == 0, errors
        last = max(begun.glob("shards/*.json"))
        record = json.loads(last.read_text())
        (begun / "shards" / f"train-{record['unit']:05d}-000.json").unlink()  # so that the unit is written again
        last.write_text(last.read_text().replace('"tokens": ', '"tokens": 1'))
        code, errors = finish(start(corpus, begun))
        assert code == 1
        assert f"{last} was written by another machine and says otherwise" in errors

    def test_a_store_that_one_machine_is_writing(self, corpus: list[Path], tmp_path: Path) -> None:
        from tokpress.storage.lock import WriterLock

        with WriterLock(tmp_path / "store"), pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokpress.run.shared._LOCK_SECONDS", 0.0)
            with pytest.raises(tokpress.errors.StoreError, match="is being written by another run"):
                tokpress.build_share(corpus, tokenizer="bytes", out=tmp_path / "store", share="0/2")

    @pytest.mark.parametrize("options", [["--overwrite"], ["--seal"], ["--limit", "5"]])
    def test_what_cannot_be_shared(self, corpus: list[Path], tmp_path: Path, options: list[str]) -> None:
        code, errors = finish(start(corpus, tmp_path / "store", "--share", f"0/{NODES}", *options))
        assert code == 2, errors

    def test_to_seal_what_is_not_done(self, corpus: list[Path], begun: Path) -> None:
        code, errors = finish(start(corpus, begun, "--seal"))
        assert code == 1
        assert "are not done" in errors
        assert f"tokpress status {begun}" in errors
