"""Builds into a bucket, on a server that misbehaves and under kills: a local build's bytes, nothing lost, nothing twice.

`make remote` runs hundreds of seeds; `make test` a few.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from s3_server import ENVIRONMENT, Fault, S3Server, serve

import tokpress
from crash.building import contents, finish, kill_someone, start, write_corpus
from tokpress.errors import StoreError
from tokpress.records import MANIFEST, PLAN
from tokpress.storage import open_storage, requests, spool
from tokpress.store.verify import verify_store

BUCKET = "s3://bucket/run"
ROUNDS = int(os.environ.get("TOKPRESS_REMOTE_ROUNDS", "12"))
KILLS = int(os.environ.get("TOKPRESS_REMOTE_KILLS", "1"))

OBJECTS = {
    "plan": "plan.json$",
    "tokenizer": "tokenizer/",
    "ids": r"\.bin$",
    "ends": r"\.ends$",
    "positions": r"\.pos$",
    "masks": r"\.mask$",
    "kept fields": r"\.docs\.parquet$",
    "rejects": "rejects/",
    "receipts": r"shards/.*\.json$",
    "manifest": "manifest.json$",
}
PARTED = ("ids", "positions", "kept fields")  # large enough for several parts, in these tests
CASES = [
    *((kind, name) for name in OBJECTS for kind in ("503", "409", "lost", "reset", "stall")),
    *(("torn", name) for name in PARTED),
    *((kind, "read back") for kind in ("503", "reset", "stall")),
    *((kind, "lists") for kind in ("503", "reset", "stall")),
]


class Expected(NamedTuple):
    inputs: Path
    tokenizer: Path
    files: dict[str, str]  # hashes


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOKPRESS_REQUEST_TIMEOUT", "0.5")
    monkeypatch.setenv("TOKPRESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


def write_records(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = [json.dumps({"p": "x" * rng.randrange(400), "c": str(k), "id": f"{k:09}"}) for k in range(120)]
    for _ in range(9):
        lines.insert(rng.randrange(len(lines)), "not json")
    path.write_text("\n".join(lines))


def build(inputs: Path, out: str, tokenizer: Path) -> None:
    tokpress.build(
        [str(inputs)],
        out=out,
        tokenizer=str(tokenizer),
        prompt_field="p",
        completion_field="c",
        keep=["id"],
        val_fraction=0.2,
        unit_size="9kB",
        shard_size="6kB",
        max_rejects="100%",
        workers=1,
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, bpe: Path) -> Expected:
    directory = tmp_path_factory.mktemp("expected")
    write_records(directory / "in.jsonl", 1)
    build(directory / "in.jsonl", str(directory / "store"), bpe)
    return Expected(directory / "in.jsonl", bpe, hashes(contents(directory / "store")))


def hashes(files: dict[str, bytes]) -> dict[str, str]:
    return {key: hashlib.sha256(data).hexdigest() for key, data in files.items()}


def in_bucket(server: S3Server, prefix: str = "run/") -> dict[str, str]:
    """Every byte there but how the run went."""
    files = {key.removeprefix(prefix): data for key, data in server.contents(prefix).items()}
    manifest = json.loads(files[MANIFEST])
    del manifest["run"], manifest["checksum"]
    return hashes(files | {MANIFEST: json.dumps(manifest).encode()})


def fault_of(kind: str, name: str, rng: random.Random) -> Fault:
    if name == "lists":
        return Fault(kind, "LIST", left=rng.randint(1, 3))
    if name == "read back":
        return Fault(kind, "GET", "tokenizer/|rejects/", left=rng.randint(1, 2))
    if kind == "torn":
        return Fault(kind, "POST", OBJECTS[name] if name != "ids" else r"train-00001-000\.bin$", skip=1)
    most = 1 if (kind, name) == ("lost", "manifest") else 3  # there is one, and it is created once
    return Fault(kind, "PUT", OBJECTS[name], left=rng.randint(1, most))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_faults_change_nothing(
    server: S3Server, expected: Expected, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    spread = len(CASES) // min(ROUNDS, len(CASES))  # a few rounds take cases from all over
    first = CASES[seed * spread % len(CASES)]
    chosen = [first, rng.choice([case for case in CASES if case[1] != first[1]])]
    if any(kind == "torn" for kind, _ in chosen):
        chosen = chosen[:1] if chosen[0][0] == "torn" else chosen[1:]  # parts are counted
        part = 80 if chosen[0][1] == "positions" else 400  # of these there are few bytes
        monkeypatch.setattr(spool, "MULTIPART_BYTES", part)
        monkeypatch.setattr(spool, "PART_BYTES", part)
    faults = {case: fault_of(*case, rng) for case in chosen}
    server.faults = list(faults.values())
    build(expected.inputs, BUCKET, expected.tokenizer)
    assert in_bucket(server) == expected.files
    assert {fault.kind for fault in faults.values()} <= {kind for kind, *_ in server.fired}
    assert [case for case, fault in faults.items() if fault.left] == []  # every fault fired, as often as it should
    assert verify_store(open_storage(BUCKET)).ok


class Corpus(NamedTuple):
    inputs: list[Path]
    files: dict[str, str]  # hashes of a local build


@pytest.fixture(scope="module")
def corpus_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Corpus]:
    """One of a few corpora: what is random in a round of kills is when, and whom."""

    @cache
    def made(number: int) -> Corpus:
        directory = tmp_path_factory.mktemp("corpus")
        inputs = write_corpus(directory / "in", number)
        sizes: dict[str, str] = {"unit_size": "60kB", "shard_size": "40kB"}
        tokpress.build(inputs, out=directory / "store", tokenizer="bytes", max_rejects="100%", workers=1, **sizes)  # type: ignore[arg-type]
        return Corpus(inputs, hashes(contents(directory / "store")))

    return lambda seed: made(seed % 5)


@pytest.mark.parametrize("seed", range(KILLS))
def test_kills_change_nothing(server: S3Server, corpus_of: Callable[[int], Corpus], seed: int) -> None:
    rng = random.Random(seed)
    corpus = corpus_of(seed)
    options = ("--shard-size", "40kB", "--unit-size", "60kB", "--workers", "2")
    killed = False
    for _ in range(rng.randint(1, 2)):
        moment = len(server.requests) + rng.randrange(5, 150)  # requests, so that it falls anywhere in the work
        process = start(corpus.inputs, BUCKET, *options)
        while process.poll() is None and len(server.requests) < moment:
            time.sleep(0.002)
        killed |= kill_someone(process, rng)
        if finish(process)[0] == 0 and killed:  # without a worker a build goes on by itself
            break
    assert killed
    code, errors = finish(start(corpus.inputs, BUCKET, *options))
    assert code == 0, errors
    assert in_bucket(server) == corpus.files


class TestTwoWriters:
    def test_another_s_receipt_that_says_something_else_stops_the_run(
        self, server: S3Server, expected: Expected
    ) -> None:
        inputs, tokenizer, _ = expected
        build(inputs, BUCKET, tokenizer)
        storage = open_storage(BUCKET)
        receipt = next(key for key in storage.list("shards") if key.endswith("00001-000.json"))
        other = storage.read(receipt).replace(b'"tokens": ', b'"tokens": 1')
        for key in [MANIFEST, *(key for key in storage.list("shards") if key.endswith(".json"))]:
            storage.delete(key)

        def meanwhile(method: str, key: str) -> None:
            if method == "PUT" and key == f"run/{receipt}":
                server.bucket.objects[key] = (other, {})

        server.before = meanwhile
        with pytest.raises(StoreError, match="written by another machine and says otherwise"):
            build(inputs, BUCKET, tokenizer)
        assert not storage.exists(MANIFEST)

    def test_a_plan_that_cannot_be_read_now_is_not_taken_for_none(self, server: S3Server, expected: Expected) -> None:
        inputs, tokenizer, _ = expected
        build(inputs, BUCKET, tokenizer)
        before = server.contents()
        server.faults = [Fault("503", "GET", "plan.json$", left=1000)]
        with pytest.raises(StoreError, match="busy or failing"):
            build(inputs, BUCKET, tokenizer)
        assert server.contents() == before
        assert f"run/{PLAN}" in before


def test_a_bucket_that_ignores_conditions_is_named(
    monkeypatch: pytest.MonkeyPatch, expected: Expected, tmp_path: Path
) -> None:
    with serve(ignore_conditions=True) as liar:
        monkeypatch.setenv("AWS_ENDPOINT_URL", liar.endpoint)
        process = start([expected.inputs], BUCKET, "--prompt-field", "p", "--completion-field", "c")
        code, said = finish(process)
        assert code == 0, said
        assert "ignores conditions: write to it from one machine only" in " ".join(said.split())


def test_no_credential_is_in_anything_that_a_failing_run_leaves(server: S3Server, tmp_path: Path) -> None:
    marked = "MARKEDKEY0123456789abcdef"
    inputs = write_corpus(tmp_path / "in", 1)
    server.faults = [Fault("403", "PUT", r"\.bin$", left=10**6)]
    environment = {
        "AWS_ACCESS_KEY_ID": marked,
        "AWS_SECRET_ACCESS_KEY": marked,
        "AWS_SESSION_TOKEN": marked,
        "TOKPRESS_SPOOL_DIR": str(tmp_path),
    }
    log = tmp_path / "events.jsonl"
    process = start(inputs, BUCKET, "--events", str(log), "--workers", "2", **environment)
    code, said = finish(process)
    assert code == 1
    assert "s3://bucket/run/shards/" in said
    assert "the store refuses access" in " ".join(said.split())
    left = [said.encode(), log.read_bytes(), *server.contents().values()]
    left += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(marked.encode() in data for data in left)
