"""Several machines write one store, and whatever happens to them, it is the store that one machine writes.

Processes stand for machines, a directory or a bucket on a server that misbehaves for what they share. `make test` tells one
seed of each story, with processes as users start them on the directory; `make share` tells a hundred on both, with processes
that are forked (`forked`), so that a seed takes two seconds of CPU instead of twenty.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest
from s3_server import ENVIRONMENT, serve

import tokpress
from crash.building import finish, start, write_corpus
from crash.forked import ForkServer
from crash.poison import poisoned
from crash.shares import (
    Bucket,
    Cluster,
    Directory,
    Node,
    Place,
    build_alone,
    ended,
    forked,
    real,
    signal_all,
    succeed,
)
from tokpress.run.status import read_status
from tokpress.storage import open_storage
from tokpress.store.verify import verify_store

EVERYTHING = os.environ.get("TOKPRESS_SHARE_EVERYTHING") == "1"
FIRST_SEED = int(os.environ.get("TOKPRESS_SHARE_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("TOKPRESS_SHARE_SEEDS", "100" if EVERYTHING else "1")))
NODES = 6 if EVERYTHING else 2
OPTIONS = ("--val-fraction", "0.3")
long_story = pytest.mark.skipif(not EVERYTHING, reason="make share")
INTERRUPTED = 130

MakePlace = Callable[[random.Random], Place]
MakeCluster = Callable[..., Cluster]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("share") / "in", 0, texts=240)


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return build_alone(corpus, tmp_path_factory.mktemp("share") / "alone", *OPTIONS)


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("forked"))
    yield server
    print(f"{server.cpu_seconds:.0f} seconds of CPU in forked processes")
    server.end()


@pytest.fixture(params=["directory", "bucket"])
def make_place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePlace]:
    if request.param == "directory":
        yield lambda rng: Directory(tmp_path / "store")
        return
    with serve() as server:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield partial(Bucket, server)


@pytest.fixture
def start_node(make_place: MakePlace, request: pytest.FixtureRequest) -> Callable[[list[str]], Node]:
    """As users start them, but for the many."""
    on_directory = request.node.callspec.params["make_place"] == "directory"
    if on_directory and not EVERYTHING:
        return real()
    names = ("AWS_ENDPOINT_URL", *ENVIRONMENT)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    return forked(request.getfixturevalue("fork_server"), **environment)


Story = Callable[[Cluster, list[Node], random.Random], None]


def killed_and_started_again(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        nodes.wait_for_receipts(rng.randrange(40))
        sleep(rng.random() * 0.02)  # anywhere between two of them
        index = rng.randrange(nodes.nodes)
        signal_all(shares[index], signal.SIGKILL)
        finish(shares[index])
        nodes.place.check_honest()
        shares[index] = nodes.share(index)


def frozen_and_replaced_by_a_twin(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    index = rng.randrange(nodes.nodes)
    nodes.wait_for_receipts(rng.randrange(40))
    sleep(rng.random() * 0.02)
    frozen = shares[index]
    signal_all(frozen, signal.SIGSTOP)
    shares[index] = nodes.share(index)
    if rng.random() < 0.5:  # the twin ends before the first goes on
        succeed(shares[index])
    signal_all(frozen, signal.SIGCONT)
    succeed(frozen)


def told_to_end(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    index = rng.randrange(nodes.nodes)
    nodes.wait_for_receipts(rng.randrange(40))
    shares[index].send_signal(signal.SIGTERM)
    code, errors = finish(shares[index])
    assert code in (0, INTERRUPTED, -signal.SIGTERM), errors  # the last: before it could say how it takes signals
    if code == INTERRUPTED:
        assert "go on with the same command" in errors
    nodes.place.check_honest()
    shares[index] = nodes.share(index)


def one_that_never_ran(nodes: Cluster, shares: list[Node], rng: random.Random) -> None:
    lost = shares.pop(rng.randrange(nodes.nodes))
    nodes.wait_for_receipts(rng.randrange(20))
    signal_all(lost, signal.SIGKILL)


STORIES: list[Story] = [killed_and_started_again, frozen_and_replaced_by_a_twin, told_to_end, one_that_never_ran]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_store_is_the_same(
    story: Story,
    seed: int,
    corpus: list[Path],
    expected: dict[str, bytes],
    make_place: MakePlace,
    start_node: Callable[[list[str]], Node],
) -> None:
    rng = random.Random(seed)
    place = make_place(rng)
    with ended(Cluster(corpus, place, NODES, start_node, OPTIONS)) as nodes:
        shares = [nodes.share(index) for index in range(NODES)]
        story(nodes, shares, rng)
        for share in shares:
            succeed(share)
        status = read_status(open_storage(os.fspath(place.out)))
        if story is not one_that_never_ran:
            assert status.left == []
            assert {each.share for each in status.attempts} == {f"{i}/{NODES}" for i in range(NODES)}
        sealers = [nodes.start() for _ in range(2)]  # one of them is first
        for sealer in sealers:
            succeed(sealer)
        assert place.contents() == expected
        assert verify_store(open_storage(os.fspath(place.out))).ok


@long_story
@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_goes_on_after_the_end_changes_no_byte(
    seed: int,
    corpus: list[Path],
    expected: dict[str, bytes],
    make_place: MakePlace,
    start_node: Callable[[list[str]], Node],
) -> None:
    rng = random.Random(seed)
    place = make_place(rng)
    with ended(Cluster(corpus, place, NODES, start_node, OPTIONS)) as nodes:
        late = nodes.share(0)
        nodes.wait_for_receipts(rng.randrange(1, 12))
        sleep(rng.random() * 0.02)
        signal_all(late, signal.SIGSTOP)
        succeed(nodes.start())
        assert place.contents() == expected
        signal_all(late, signal.SIGCONT)
        finish(late)
        assert place.contents() == expected
        assert verify_store(open_storage(os.fspath(place.out))).ok


@pytest.mark.parametrize("seed", SEEDS)
def test_overwritten_while_one_of_the_old_run_is_alive(
    seed: int,
    corpus: list[Path],
    expected: dict[str, bytes],
    make_place: MakePlace,
    start_node: Callable[[list[str]], Node],
) -> None:
    rng = random.Random(seed)
    place = make_place(rng)
    old = Cluster(corpus, place, NODES, start_node, ("--shard-size", "9kB"))
    new = Cluster(corpus, place, NODES, start_node, OPTIONS)
    with ended(old), ended(new):
        zombie = old.share(0)
        old.wait_for_receipts(rng.randrange(1, 12))
        sleep(rng.random() * 0.02)
        signal_all(zombie, signal.SIGSTOP)
        again = new.start("--overwrite")
        if rng.random() < 0.5:
            new.wait_for_receipts(1)
        else:
            succeed(again)
        signal_all(zombie, signal.SIGCONT)
        finish(zombie)
        succeed(again)
        assert place.contents() == expected
        assert verify_store(open_storage(os.fspath(place.out))).ok


@long_story
@pytest.mark.parametrize("seed", SEEDS)
def test_a_poisonous_document_whose_machine_is_killed(seed: int, make_place: MakePlace, tmp_path: Path) -> None:
    """With worker processes, which it kills."""
    rng = random.Random(seed)
    place = make_place(rng)
    source = tmp_path / "corpus.jsonl"
    bad = {rng.randrange(100, 900): "segfault", rng.randrange(1100, 1900): "exit"}
    texts = [f"!!{bad[i]} {i}" if i in bad else f"document {i} " * 4 for i in range(2000)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    environment = poisoned(tmp_path)
    alone = build_alone([source], tmp_path / "alone", **environment)
    with ended(Cluster([source], place, 3, real(**environment))) as nodes:
        shares = [nodes.share(index) for index in range(nodes.nodes)]
        until = monotonic() + rng.random() * 8
        while monotonic() < until and not place.verdicts():
            sleep(0.005)
        index = rng.randrange(nodes.nodes)
        signal_all(shares[index], signal.SIGKILL)
        finish(shares[index])
        shares[index] = nodes.share(index)
        for share in shares:
            succeed(share)
        succeed(nodes.start())
        assert place.contents() == alone
    assert tokpress.open(os.fspath(place.out)).manifest.rejects == {"crashed-tokenizer": 2}


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
