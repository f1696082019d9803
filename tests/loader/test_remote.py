"""A loader that reads from a bucket gives what the local one gives, digest for digest, whatever its cache holds."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from s3_server import ENVIRONMENT, Fault, S3Server, serve

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.loader import loader as loading
from tokpress.storage import pages, requests
from tokpress.storage.pages import PageCache

STATES = int(os.environ.get("TOKPRESS_REMOTE_STATES", "40"))
PART = 40  # states of one test
BUCKET = "s3://bucket/run"
SEQ_LEN = 128


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("remote")
    rng = random.Random(0)
    lines = (json.dumps({"p": "x", "c": "".join(rng.choices("abcdef ", k=rng.randrange(2000)))}) for _ in range(1500))
    (directory / "in.jsonl").write_text("\n".join(lines))
    tokpress.build(
        [str(directory / "in.jsonl")],
        out=str(directory / "store"),
        tokenizer="bytes",
        prompt_field="p",
        completion_field="c",
        shard_size="400kB",
        workers=1,
    )
    return directory / "store"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, local: Path) -> Iterator[S3Server]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        for path in local.rglob("*"):
            if path.is_file():
                running.bucket.objects[f"run/{path.relative_to(local).as_posix()}"] = (path.read_bytes(), {})
        yield running


def size_of(local: Path) -> int:
    """Bytes of what a loader reads: ids and masks."""
    return sum(path.stat().st_size for end in ("bin", "mask") for path in local.rglob(f"*.{end}"))


def data_of(store: Path | str, **options: Any) -> tokpress.PretokenizedDataset:
    return tokpress.PretokenizedDataset(
        store, seq_len=SEQ_LEN, fields=("input_ids", "labels", "position_ids"), output="numpy", **options
    )


def digests(loader: tokpress.Loader, batches: int | None = None) -> list[str]:
    return [
        hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in batch.values())).hexdigest()
        for batch in islice(loader, batches)
    ]


def loader_of(data: tokpress.PretokenizedDataset, **options: Any) -> tokpress.Loader:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what shuffle=True fetches; there is a test of its own
        return tokpress.Loader(data, **({"batch_size": 16, "seed": 5} | options))


@pytest.mark.parametrize("share", [0.01, 0.1, 1])
@pytest.mark.parametrize("shuffle", [True, "blocks", False])
def test_the_batches_are_the_local_ones(
    server: S3Server, local: Path, tmp_path: Path, share: float, shuffle: bool | str
) -> None:
    limit = max(int(size_of(local) * share), pages.PAGE_BYTES)
    remote = loader_of(data_of(BUCKET, cache_dir=tmp_path, cache_bytes=limit), shuffle=shuffle)
    near = loader_of(data_of(local), shuffle=shuffle)
    assert digests(remote) == digests(near)
    assert remote.state_dict() == near.state_dict()


@pytest.mark.parametrize("part", range(-(-STATES // PART)))
def test_random_states_are_resumed(server: S3Server, local: Path, tmp_path: Path, part: int) -> None:
    rng = random.Random(part)
    near_data = data_of(local)
    caches = {share: max(int(size_of(local) * share), pages.PAGE_BYTES) for share in (0.01, 0.1, 1)}
    far_data = {
        share: data_of(BUCKET, cache_dir=tmp_path / str(share), cache_bytes=limit) for share, limit in caches.items()
    }
    for number in range(min(PART, STATES - part * PART)):
        shuffle = rng.choice([True, "blocks", False])
        world = rng.choice([1, 2, 3])
        shape = {
            "batch_size": rng.choice([4, 16]),
            "seed": rng.randrange(3),
            "shuffle": shuffle,
            "rank": rng.randrange(world),
            "world_size": world,
            "max_epochs": 3,
        }
        near = loader_of(near_data, threads=0, **shape)
        far = loader_of(far_data[rng.choice(list(caches))], threads=rng.choice([0, 1]), **shape)
        start = rng.randrange(len(near) - 4)
        state = stated(near, start)
        near.load_state_dict(state)
        far.load_state_dict(state)
        assert digests(far, 3) == digests(near, 3), (number, shape)
        assert far.state_dict() == near.state_dict()


def stated(loader: tokpress.Loader, step: int) -> dict[str, Any]:
    """The state after so many steps, without making them."""
    state = loader.state_dict()
    return state | {"step": step, "samples": step * loader._sharing.step_samples}


def test_blocks_fetch_each_byte_once(
    server: S3Server, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, windows and pages are in the proportions of the real ones; the cache holds two windows."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 1024)
    monkeypatch.setattr(loading, "_BLOCK_BYTES", 32 * 1024)
    monkeypatch.setattr(loading, "_BUNDLE_BYTES", 2**18)
    monkeypatch.setattr(loading, "PLAN_SAMPLES", 2**9)
    data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=2 * 16 * 32 * 1024 * 3 // 2)
    total = size_of(local)
    assert digests(loader_of(data, shuffle="blocks")) == digests(loader_of(data_of(local), shuffle="blocks"))
    assert data.stream.pages is not None
    assert total * 0.9 < data.stream.pages.fetched_bytes <= total * 1.05


def test_what_is_there_is_not_fetched_again(server: S3Server, local: Path, tmp_path: Path) -> None:
    for expected in (True, False):
        data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local))
        digests(loader_of(data))
        assert data.stream.pages is not None
        assert bool(data.stream.pages.fetched_bytes) == expected


def test_the_cache_stays_within_its_bound(server: S3Server, local: Path, tmp_path: Path) -> None:
    limit = size_of(local) // 4
    data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=limit)
    digests(loader_of(data, shuffle=False))
    taken = sum(path.stat().st_blocks * 512 for path in (tmp_path / "pages").rglob("data"))
    assert 0 < taken <= limit * 1.2


def test_a_damaged_page_is_got_again(server: S3Server, local: Path, tmp_path: Path) -> None:
    digests(loader_of(data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local))))
    (cached,) = (tmp_path / "pages").rglob("data")
    with cached.open("r+b") as file:
        file.seek(100_000)
        file.write(bytes(10_000))
    again = loader_of(data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local)))
    assert digests(again) == digests(loader_of(data_of(local)))


def test_reads_that_fail_for_a_while_are_waited_for(server: S3Server, local: Path, tmp_path: Path) -> None:
    data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local))
    server.faults = [Fault(kind, "GET", r"\.(bin|mask)$", left=20) for kind in ("503", "reset")]
    assert digests(loader_of(data)) == digests(loader_of(data_of(local)))
    assert {kind for kind, *_ in server.fired} == {"503", "reset"}


def test_an_object_that_was_replaced_is_an_error(server: S3Server, local: Path, tmp_path: Path) -> None:
    data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local))
    for key, (content, metadata) in list(server.bucket.objects.items()):
        if key.endswith(".bin"):
            server.bucket.objects[key] = (content[::-1], metadata)
    with pytest.raises(OSError, match="was changed since"):
        digests(loader_of(data))


READER = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[4])
from loader.test_remote import BUCKET, data_of, digests, loader_of
data = data_of(BUCKET, cache_dir=sys.argv[1], cache_bytes=int(sys.argv[2]))
loader = loader_of(data, seed=int(sys.argv[3]))
for batch in loader:
    print("batch", flush=True)
"""


def reader(cache: Path, limit: int, seed: int) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", READER, str(cache), str(limit), str(seed), tests]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("share", [0.1, 1])
def test_two_share_a_cache_and_one_is_killed(server: S3Server, local: Path, tmp_path: Path, share: float) -> None:
    limit = int(size_of(local) * share)
    other = reader(tmp_path, limit, seed=9)
    assert other.stdout is not None
    mine = loader_of(data_of(BUCKET, cache_dir=tmp_path, cache_bytes=limit))
    expected = digests(loader_of(data_of(local)))
    found = []
    try:
        assert other.stdout.readline() == "batch\n"  # it fills the cache, from here on
        found = digests(mine, 20)
        other.send_signal(signal.SIGKILL)
        found += digests(mine)
    finally:
        other.kill()
        other.stdout.close()
        other.wait()
    assert found == expected


def test_two_who_share_a_cache_fetch_what_one_would(server: S3Server, local: Path, tmp_path: Path) -> None:
    limit = size_of(local)
    before = server.sent
    others = [reader(tmp_path, limit, seed) for seed in (1, 2)]
    for other in others:
        other.communicate(timeout=120)
        assert other.returncode == 0
    assert (
        server.sent - before
        <= size_of(local) * 1.05
        + sum(path.stat().st_size for end in ("ends", "json") for path in local.rglob(f"*.{end}")) * 2
    )


class TestRefused:
    def test_a_cache_below_a_page(self, server: S3Server, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="less than one page"):
            data_of(BUCKET, cache_dir=tmp_path, cache_bytes=pages.PAGE_BYTES - 1)

    def test_a_cache_for_a_local_store(self, local: Path) -> None:
        with pytest.raises(UsageError, match="for stores in a bucket"):
            data_of(local, cache_bytes=10**9)

    def test_checking_all_before_the_first_batch(self, server: S3Server, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="tokpress verify s3://bucket/run"):
            data_of(BUCKET, cache_dir=tmp_path, verify="first-touch")

    def test_a_store_that_is_not_there(self, server: S3Server) -> None:
        with pytest.raises(StoreError, match="no store at s3://bucket/none"):
            data_of("s3://bucket/none")


def test_what_shuffle_will_fetch_is_said_beforehand(server: S3Server, local: Path, tmp_path: Path) -> None:
    data = data_of(BUCKET, cache_dir=tmp_path, cache_bytes=size_of(local) // 10)
    with pytest.warns(
        UserWarning,
        match=r"an epoch will fetch about .* times the store.*copy all of it to a disk: tokpress copy s3://bucket/run",
    ):
        tokpress.Loader(data, batch_size=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokpress.Loader(data, batch_size=16, shuffle="blocks")
        whole = data_of(BUCKET, cache_dir=tmp_path / "whole", cache_bytes=size_of(local))
        tokpress.Loader(whole, batch_size=16)


class TestPages:
    def test_any_pages_of_any_objects_hold_their_bytes(self, tmp_path: Path) -> None:
        rng = random.Random(3)
        objects = [rng.randbytes(size) for size in (0, 1, pages.PAGE_BYTES, 5 * pages.PAGE_BYTES + 7, 0, 99_999)]
        cache = PageCache(
            tmp_path,
            [len(data) for data in objects],
            lambda i, start, stop: objects[i][start:stop],
            3 * pages.PAGE_BYTES,
        )
        for _ in range(200):
            index = rng.choice([1, 2, 3, 5])
            start = rng.randrange(len(objects[index]))
            stop = rng.randint(start + 1, len(objects[index]))
            wanted = cache.pages_of(*(np.array([number]) for number in (index, start, stop)))
            with cache.holding(wanted):
                assert cache.array(index)[start:stop].tobytes() == objects[index][start:stop]

    def test_what_a_killed_writer_left_is_given_back(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 4096

        def make() -> PageCache:
            return PageCache(tmp_path, [len(data)], lambda _, start, stop: data[start:stop], len(data))

        cache = make()
        cache.fill(np.arange(8))
        cache._sums[4:8] = 0  # as if it had been killed before it could say that they are there
        make()
        assert (tmp_path / "data").stat().st_blocks * 512 == 4 * pages.PAGE_BYTES
