"""A store that is copied is the same store, whatever happens on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer, serve_hub
from s3_server import ENVIRONMENT, Fault, S3Server, serve

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.records import MANIFEST, PLAN
from tokpress.storage import open_storage, requests
from tokpress.storage.object_store import ObjectStorage

BUCKET = "s3://bucket/run"
HUB = "hf://datasets/me/tokens"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOKPRESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_DISABLE_XET", True
    )  # the variable is read once, at the import
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", "hf_local")
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With rejects, masks, kept fields, two splits and a pack."""
    directory = tmp_path_factory.mktemp("copied")
    lines = [json.dumps({"p": "x" * (i % 50), "c": f"{i} " * 40, "id": str(i)}) for i in range(200)]
    (directory / "in.jsonl").write_text("\n".join([*lines, "bad"]))
    options: dict[str, Any] = {"prompt_field": "p", "completion_field": "c", "keep": ["id"], "val_fraction": 0.2}
    tokpress.build(
        directory / "in.jsonl", out=directory / "s", tokenizer="bytes", shard_size="10kB", unit_size="15kB", **options
    )
    tokpress.pack(directory / "s", seq_len=128, method="bestfit")
    return directory / "s"


def files_of(place: Path | str) -> dict[str, bytes]:
    storage = open_storage(place)
    return {key: storage.read(key) for key in storage.list() if key not in ("README.md", ".gitattributes")}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestSame:
    def test_to_a_bucket_to_another_and_back(self, server: S3Server, store: Path, tmp_path: Path) -> None:
        there = tokpress.copy(store, BUCKET)
        again = tokpress.copy(BUCKET, "s3://bucket/other")
        back = tokpress.copy("s3://bucket/other", tmp_path / "back")
        assert files_of(BUCKET) == files_of("s3://bucket/other") == files_of(tmp_path / "back") == files_of(store)
        assert there.sent_files == again.sent_files == back.sent_files == there.files - 1
        assert any(key.startswith("packs/") for key in files_of(BUCKET))
        for place in (BUCKET, tmp_path / "back"):
            assert tokpress.verify(place).ok

    def test_from_disk_to_disk(self, store: Path, tmp_path: Path) -> None:
        tokpress.copy(store, tmp_path / "new" / "place")
        assert files_of(tmp_path / "new" / "place") == files_of(store)
        assert names(tmp_path / "new" / "place") == names(store)

    def test_progress_is_told_of_every_byte(self, server: S3Server, store: Path) -> None:
        told: list[tuple[int, int]] = []
        done = tokpress.copy(store, BUCKET, progress=lambda count, total: told.append((count, total)))
        [total] = {total for _, total in told}
        assert sum(count for count, _ in told) == total == done.bytes - len(files_of(store)[MANIFEST])


class TestArrival:
    def test_what_is_there_is_compared_and_not_sent_again(self, server: S3Server, store: Path) -> None:
        tokpress.copy(store, BUCKET)
        [damaged, *_] = sorted(key for key in server.contents() if "shards" in key and key.endswith(".bin"))
        data, metadata = server.bucket.objects[damaged]
        server.bucket.objects[damaged] = (b"?" + data[1:], metadata)
        assert tokpress.copy(store, BUCKET, read_back=False).sent_files == 0  # sizes say nothing of that
        assert tokpress.copy(store, BUCKET).sent_files == 1
        assert files_of(BUCKET) == files_of(store)

    def test_what_does_not_arrive_as_it_was_sent_is_an_error(
        self, server: S3Server, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = ObjectStorage.checksum

        def other(self: ObjectStorage, key: str) -> str:
            return "0" * 16 if key.endswith(".ends") else read(self, key)

        monkeypatch.setattr(ObjectStorage, "checksum", other)
        with pytest.raises(StoreError, match=r"\.ends did not arrive as it was sent"):
            tokpress.copy(store, BUCKET)
        assert f"run/{MANIFEST}" not in server.contents()

    def test_a_damaged_store_is_not_passed_on(self, server: S3Server, store: Path, tmp_path: Path) -> None:
        tokpress.copy(store, tmp_path / "s")
        [file, *_] = sorted((tmp_path / "s" / "shards").glob("*.mask"))
        file.write_bytes(b"?" + file.read_bytes()[1:])
        for place in (BUCKET, tmp_path / "t"):
            with pytest.raises(StoreError, match=rf"{file.name} is damaged.*tokpress verify"):
                tokpress.copy(tmp_path / "s", place)
            assert not open_storage(place).exists(MANIFEST)

    @pytest.mark.parametrize("kind", ["503", "reset", "lost", "409"])
    def test_faults_are_survived(self, server: S3Server, store: Path, tmp_path: Path, kind: str) -> None:
        server.faults = [Fault(kind, "PUT|GET|HEAD|LIST", left=6, skip=5)]
        tokpress.copy(store, BUCKET)
        server.faults.append(Fault(kind, "GET", left=4, skip=3))
        tokpress.copy(BUCKET, tmp_path / "back")
        assert files_of(tmp_path / "back") == files_of(store)
        assert len(server.fired) == 10

    def test_the_manifest_comes_last(self, server: S3Server, store: Path) -> None:
        tokpress.copy(store, BUCKET)
        puts = [key for method, key in server.requests if method == "PUT"]
        assert (puts[0], puts[-1]) == (f"run/{PLAN}", f"run/{MANIFEST}")


class TestRefused:
    def test_another_store(self, server: S3Server, store: Path, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"text": "x"}\n')
        tokpress.build(tmp_path / "x.jsonl", tokenizer="bytes", out=tmp_path / "x")
        tokpress.copy(tmp_path / "x", BUCKET)
        before = server.contents()
        with pytest.raises(UsageError, match="holds another store than"):
            tokpress.copy(store, BUCKET)
        assert server.contents() == before

    def test_a_place_with_something_else(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "photo.png").write_bytes(b"x")
        with pytest.raises(UsageError, match=r"holds something else: photo.png"):
            tokpress.copy(store, tmp_path / "d")
        assert names(tmp_path / "d") == ["photo.png"]

    def test_itself_and_what_is_no_store(self, store: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="to itself"):
            tokpress.copy(store, store)
        with pytest.raises(StoreError, match="no store at"):
            tokpress.copy(tmp_path / "none", tmp_path / "x")
        assert not (tmp_path / "x").exists()


class TestStopped:
    """By a signal, anywhere: the same command ends with the same store."""

    @pytest.mark.parametrize("after", [3, 20, 60])
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_it_goes_on(self, server: S3Server, store: Path, after: int, number: signal.Signals) -> None:
        command = [sys.executable, "-m", "tokpress", "copy", str(store), BUCKET]
        first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while len(server.requests) < after and first.poll() is None:
            time.sleep(0.001)
        first.send_signal(number)
        said = first.communicate()[1]
        assert f"run/{MANIFEST}" not in server.contents() or files_of(BUCKET) == files_of(store)
        if number == signal.SIGINT and first.returncode == 130:
            assert "go on with the same command" in said
        puts = sum(method == "PUT" for method, _ in server.requests)
        done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
        assert files_of(BUCKET) == files_of(store)
        sent = json.loads(done.stdout)["sent_files"]
        assert sent <= len(files_of(store)) - 1 - max(puts - 8, 0)  # a few were under way

    def test_from_a_bucket_to_a_disk(self, server: S3Server, store: Path, tmp_path: Path) -> None:
        tokpress.copy(store, BUCKET)
        begun = len(server.requests)
        command = [sys.executable, "-m", "tokpress", "copy", BUCKET, str(tmp_path / "back")]
        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while len(server.requests) < begun + 40 and first.poll() is None:
            time.sleep(0.001)
        first.kill()
        first.wait()
        subprocess.run(command, check=True, capture_output=True)
        assert files_of(tmp_path / "back") == files_of(store)
        assert names(tmp_path / "back") == names(store)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub, about its own client
class TestHub:
    def test_there_and_back(self, hub: HubServer, server: S3Server, store: Path, tmp_path: Path) -> None:
        done = tokpress.publish(store, HUB)
        assert done.sent_files == done.files + 1  # and the card
        assert files_of(HUB) == files_of(store)
        tokpress.copy(HUB, tmp_path / "back")
        tokpress.copy(f"{HUB}@main", BUCKET)
        assert files_of(tmp_path / "back") == files_of(BUCKET) == files_of(store)
        assert tokpress.verify(HUB).ok
        assert tokpress.open(HUB).text(3) == tokpress.open(store).text(3)

    def test_is_loaded_from_where_it_is(self, hub: HubServer, store: Path, tmp_path: Path) -> None:
        tokpress.publish(store, HUB)

        def batches(place: Path | str, **options: Any) -> list[list[int]]:
            data = tokpress.PretokenizedDataset(place, seq_len=64, output="numpy", **options)
            return [batch["input_ids"].ravel().tolist() for batch in tokpress.Loader(data, batch_size=4, seed=1)]

        assert batches(HUB, cache_dir=tmp_path, cache_bytes=10**7) == batches(store)

    def test_has_a_card(self, hub: HubServer, store: Path) -> None:
        tokpress.publish(store, HUB)
        data = hub.datasets["me/tokens"]
        card = data.commits[data.branches["main"]]["README.md"].decode()
        opened = tokpress.open(store)
        info = opened.manifest.tokenizer
        for fact in (opened.fingerprint, info.fingerprint, f"{opened.num_tokens:,}", f"tokpress copy {HUB} tokens"):
            assert fact in card

    def test_a_card_of_one_s_own_stays(self, hub: HubServer, store: Path) -> None:
        tokpress.publish(store, HUB)
        data = hub.datasets["me/tokens"]
        data.commit(data.commits[data.branches["main"]] | {"README.md": b"# mine"})
        assert tokpress.publish(store, HUB).sent_files == 0
        assert data.commits[data.branches["main"]]["README.md"] == b"# mine"

    def test_goes_on_where_it_was_stopped(self, hub: HubServer, store: Path) -> None:
        hub.uploads_left = 5
        with pytest.raises(UsageError, match="refuses the token"):
            tokpress.publish(store, HUB)
        data = hub.datasets["me/tokens"]
        assert MANIFEST not in data.commits[data.branches["main"]]
        sent = len(hub.large)
        hub.uploads_left = None
        hub.requests.clear()
        tokpress.publish(store, HUB)
        assert files_of(HUB) == files_of(store)
        assert sum("PUT /large" in request for request in hub.requests) == len(hub.large) - sent

    def test_what_arrives_otherwise_is_an_error(self, hub: HubServer, store: Path) -> None:
        hub.damages = True
        with pytest.raises(StoreError, match="is not what was sent"):
            tokpress.publish(store, HUB)

    def test_another_store_there_is_left_alone(self, hub: HubServer, store: Path, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"text": "x"}\n')
        tokpress.build(tmp_path / "x.jsonl", tokenizer="bytes", out=tmp_path / "x")
        tokpress.publish(tmp_path / "x", HUB)
        with pytest.raises(UsageError, match="holds another store"):
            tokpress.publish(store, HUB)

    def test_from_a_bucket(self, hub: HubServer, server: S3Server, store: Path) -> None:
        tokpress.copy(store, BUCKET)
        tokpress.copy(BUCKET, HUB)
        assert files_of(HUB) == files_of(store)

    def test_a_build_cannot_write_there(self, hub: HubServer, store: Path, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"text": "x"}\n')
        hub.datasets.clear()
        with pytest.raises(UsageError, match=r"tokpress publish STORE hf://datasets/me/tokens|no such dataset"):
            tokpress.build(tmp_path / "x.jsonl", tokenizer="bytes", out=HUB)
