"""Inputs in buckets, on the Hub and over https give the same store as the same files on a disk, or a clear error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_texts
from hub_server import Dataset, HubServer, serve_hub
from s3_server import ENVIRONMENT, Fault, S3Server, serve
from storage.test_object_store import AZURITE_KEY, make_container, process

import tokpress
from tokpress.config import ReadConfig
from tokpress.errors import InputError, TokpressError, UsageError
from tokpress.records import Input
from tokpress.sources.base import open_reader
from tokpress.sources.files import check_unchanged, discover
from tokpress.storage import requests
from tokpress.storage.object_store import ObjectStorage

from .reading import compress, jsonl
from .test_csv import numbered

MARKED = "SECRETMARK0123456789"
OPTIONS: dict[str, Any] = {"tokenizer": "bytes", "unit_size": 12_000, "shard_size": 6_000, "max_rejects": "100%"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(requests, "_TOO_MANY_PAUSE", 0.002)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of every kind: one that is cut in the middle, row groups of which some are large, bad records."""
    texts = make_texts(400)
    lines = jsonl(texts).splitlines(keepends=True)
    lines.insert(77, b"bad\n")
    folder = tmp_path_factory.mktemp("corpus")
    table = pa.table({"id": range(1000), "text": [f"{i} {'x' * 40_000 * (i % 5 == 4)}" for i in range(1000)]})
    pq.write_table(table, folder / "c.parquet", row_group_size=300, compression="none", use_dictionary=False)
    return {
        "a.jsonl.zst": compress(jsonl(texts), ".zst", 3),
        "b.jsonl": b"".join(lines),
        "deep/c.parquet": (folder / "c.parquet").read_bytes(),
        "deep/d.csv": numbered(texts[:100]) + b"too,few\n",
    }


@pytest.fixture
def local(corpus: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in corpus.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, corpus: dict[str, bytes]) -> Iterator[S3Server]:
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        fill(ObjectStorage("s3://bucket/data"), corpus)
        yield running


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, corpus: dict[str, bytes]) -> Iterator[HubServer]:
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        running.datasets["me/data"] = Dataset()
        running.datasets["me/data"].commit({"README.md": b"# data", **corpus})
        yield running


def fill(storage: ObjectStorage, corpus: dict[str, bytes]) -> None:
    for name, data in corpus.items():
        storage.put(name, data)


def contents(store: Path) -> dict[str, bytes]:
    """Shards and receipts as they are; rejects without the names of their inputs, and lines, which are not always known."""
    found = {path.name: path.read_bytes() for path in (store / "shards").iterdir()}
    rejects = [json.loads(line) for path in (store / "rejects").iterdir() for line in path.read_bytes().splitlines()]
    for reject in rejects:
        del reject["source"]
        reject.pop("line", None)
    return found | {"rejects": json.dumps(sorted(rejects, key=str)).encode()}


def build(inputs: Any, out: Path, **options: Any) -> dict[str, bytes]:
    store = tokpress.build(inputs, out=out, **(OPTIONS | options))
    assert store.verify().problems == []
    assert store.manifest.totals.rejected == 2
    return contents(out)


class TestSameBytes:
    """For 1, 2 and 3 workers, from everywhere."""

    @pytest.fixture
    def expected(self, local: Path, tmp_path: Path) -> dict[str, bytes]:
        files = build(local, tmp_path / "expected")
        plan = tokpress.open(tmp_path / "expected").plan
        parts = [plan.inputs[piece.input].format for unit in plan.units for piece in unit if piece.start]
        assert {"jsonl", "parquet"} <= set(parts)  # they are cut in the middle
        assert {source.format for source in plan.inputs} == {"jsonl", "parquet", "csv"}
        return files

    def same(self, inputs: Any, tmp_path: Path, expected: dict[str, bytes]) -> None:
        for workers in (1, 2, 3):
            assert build(inputs, tmp_path / f"store{workers}", workers=workers) == expected

    def test_of_a_bucket(self, server: S3Server, tmp_path: Path, expected: dict[str, bytes]) -> None:
        self.same("s3://bucket/data", tmp_path, expected)
        names = [f"s3://bucket/data/{name}" for name in ("a.*", "b.jsonl", "deep/**/[cd].*")]
        assert build(names, tmp_path / "named") == expected

    def test_of_moto(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: dict[str, bytes], expected: dict[str, bytes]
    ) -> None:
        pytest.importorskip("moto.server", reason="moto is not installed: pip install 'tokpress[dev]'")
        with process([sys.executable, "-m", "moto.server", "-p", "0"], r"Running on (http://\S+)") as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto", method="PUT")).close()
            fill(ObjectStorage("s3://moto/data"), corpus)
            self.same("s3://moto/data/", tmp_path, expected)

    @pytest.mark.parametrize("place", ["az", "https", "hub"])
    def test_of_other_places(
        self, request: pytest.FixtureRequest, tmp_path: Path, expected: dict[str, bytes], place: str
    ) -> None:
        self.same(request.getfixturevalue(f"{place}_inputs"), tmp_path, expected)

    def test_beside_local_ones(
        self, server: S3Server, hub: HubServer, local: Path, tmp_path: Path, expected: dict[str, bytes]
    ) -> None:
        inputs = ["s3://bucket/data/a.jsonl.zst", local / "b.jsonl", "hf://datasets/me/data/deep/*"]
        assert build(inputs, tmp_path / "store", workers=2) == expected

    def test_with_the_same_validation_set(self, server: S3Server, local: Path, tmp_path: Path) -> None:
        there = build("s3://bucket/data", tmp_path / "there", val_fraction=0.2)
        assert there == build(local, tmp_path / "here", val_fraction=0.2)
        assert any(name.startswith("val-") for name in there)

    @pytest.mark.parametrize("receipts", [1, 6, 14])
    @pytest.mark.parametrize("place", ["s3", "az", "https", "hub"])
    def test_after_a_kill(
        self, request: pytest.FixtureRequest, tmp_path: Path, expected: dict[str, bytes], place: str, receipts: int
    ) -> None:
        command = [sys.executable, "-m", "tokpress", "build", *request.getfixturevalue(f"{place}_inputs")]
        command += ["--unit-size", "12000", "--shard-size", "6000", "--max-rejects", "100%", "--workers", "2"]
        command += ["--tokenizer", "bytes", "--quiet", "--out", str(tmp_path / "store")]
        first = subprocess.Popen(command, start_new_session=True)
        while first.poll() is None and len(list((tmp_path / "store").glob("shards/*.json"))) < receipts:
            time.sleep(0.002)
        assert first.poll() is None, "it was done before it could be killed"
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        subprocess.run(command, check=True)
        assert contents(tmp_path / "store") == expected

    @pytest.fixture
    def s3_inputs(self, server: S3Server) -> list[str]:
        return ["s3://bucket/data"]

    @pytest.fixture
    def https_inputs(self, server: S3Server, corpus: dict[str, bytes]) -> list[str]:
        return [f"{server.endpoint}/bucket/data/{name}" for name in corpus]

    @pytest.fixture
    def hub_inputs(self, hub: HubServer) -> list[str]:
        return ["hf://datasets/me/data/*.jsonl*", "hf://datasets/me/data@main/deep"]

    @pytest.fixture
    def az_inputs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: dict[str, bytes]
    ) -> Iterator[list[str]]:
        azurite = os.environ.get("AZURITE") or shutil.which("azurite-blob")
        if azurite is None:
            pytest.skip("azurite is not installed: npm install --global azurite")
        command = [azurite, "--blobPort", "0", "--skipApiVersionCheck", "--location", str(tmp_path / "azurite")]
        with process(command, r"listens? (?:at|on) (http://\S+)") as endpoint:
            account = f"AccountName=devstoreaccount1;AccountKey={AZURITE_KEY}"
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{account};BlobEndpoint={endpoint}/devstoreaccount1")
            make_container(endpoint, "devstoreaccount1", AZURITE_KEY, "inputs")
            fill(ObjectStorage("az://inputs/data"), corpus)
            yield ["az://inputs/data"]


class TestNames:
    def names(self, argument: str, **options: Any) -> list[str]:
        return [source.path for source in discover([argument], ReadConfig(**options))]

    def test_a_glob_is_that_of_a_disk(self, server: S3Server, local: Path) -> None:
        storage = ObjectStorage("s3://bucket/data")
        for name in (".hidden.jsonl", ".git/x.jsonl", "deep/er/e.jsonl", "notes.bin", "deep/.f.jsonl", "deep/g.jsonl"):
            storage.put(name, b"{}\n")
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_bytes(b"{}\n")
        for pattern in ("", "/*.jsonl", "/**/*.jsonl", "/**", "/*/*.jsonl", "/de*", "/**/*.[jc]s*", "/deep/**/*.csv"):
            here = [path.removeprefix(str(local)) for path in self.names(f"{local}{pattern}", format="lines")]
            there = [
                path.removeprefix("s3://bucket/data")
                for path in self.names(f"s3://bucket/data{pattern}", format="lines")
            ]
            assert sorted(there) == sorted(here), pattern

    def test_an_object_is_pinned_by_its_tag(self, server: S3Server, hub: HubServer, corpus: dict[str, bytes]) -> None:
        [there] = discover(["s3://bucket/data/b.jsonl"], ReadConfig())
        assert there == Input(
            path="s3://bucket/data/b.jsonl", format="jsonl", size=len(corpus["b.jsonl"]), mtime_ns=0, tag=there.version
        )
        assert there.version.startswith('"')
        [here] = discover(["hf://datasets/me/data/b.jsonl"], ReadConfig())
        sha = hub.datasets["me/data"].branches["main"]
        assert here.path == f"hf://datasets/me/data@{sha}/b.jsonl"
        assert len(here.version) == 64

    @pytest.mark.parametrize(
        ("argument", "words"),
        [
            ("s3://bucket/gone", "no such object, and nothing under that prefix: s3://bucket/gone"),
            ("s3://bucket/data/*.nothing", "nothing matches s3://"),
            ("s3://bucket/data/x.warc.gz", "a web archive, which is not read"),
            ("https://localhost/data/*.jsonl", "cannot be listed over https. Name its files"),
            ("https://localhost/a.jsonl?sig=abc", "is followed by a query"),
            ("ftp://host/a.jsonl", "inputs at ftp:// are not read. Known are s3://"),
            ("hf://models/me/data/x", "names no dataset of the Hub"),
            ("hf://datasets/data", "names no dataset of the Hub"),
            ("hf://datasets/me/data/more@main/x", "names no dataset of the Hub"),
            ("hf://datasets/me/gone/*.jsonl", "no such dataset"),
            ("hf://datasets/me/data@gone/*.jsonl", "no such revision"),
        ],
    )
    def test_that_lead_nowhere(self, server: S3Server, hub: HubServer, argument: str, words: str) -> None:
        ObjectStorage("s3://bucket/data").put("x.warc.gz", b"x")
        with pytest.raises(UsageError, match=words):
            discover([argument], ReadConfig())


class TestReading:
    def test_a_row_group_is_read_without_the_rest(self, server: S3Server, tmp_path: Path) -> None:
        wide = pa.table({"text": ["x" * 1000] * 20_000, "other": [os.urandom(1000) for _ in range(20_000)]})
        pq.write_table(wide, tmp_path / "w.parquet", row_group_size=5_000, compression="none", use_dictionary=False)
        size = (tmp_path / "w.parquet").stat().st_size
        ObjectStorage("s3://bucket").put("w.parquet", (tmp_path / "w.parquet").read_bytes())
        [source] = discover(["s3://bucket/w.parquet"], ReadConfig())
        server.sent = 0
        reader = open_reader(source, 0, ReadConfig(), 1024**2)
        assert sum(len(batch) for batch in reader.read(5_000, 10_000)) == 5_000
        assert server.sent < 0.25 * size  # a quarter of the rows, half of which is text, and the footer

    def test_a_cut_file_is_read_about_once(self, server: S3Server, tmp_path: Path) -> None:
        data = jsonl(["y" * 1000] * 60_000)
        ObjectStorage("s3://bucket").put("big.jsonl", data)
        server.sent = 0
        store = tokpress.build(
            "s3://bucket/big.jsonl", tokenizer="bytes", out=tmp_path / "s", unit_size="20MB", workers=2
        )
        assert (len(store), len(store.plan.units)) == (60_000, 3)
        assert server.sent < 2.2 * len(data)


class TestTrouble:
    @pytest.mark.parametrize("kind", ["503", "429", "lost", "reset"])
    def test_a_busy_or_broken_server_is_asked_again(
        self, server: S3Server, local: Path, tmp_path: Path, kind: str
    ) -> None:
        server.faults = [Fault(kind, "GET|HEAD|LIST", left=4, skip=2)]
        assert build("s3://bucket/data", tmp_path / "there") == build(local, tmp_path / "here")
        assert len(server.fired) == 4

    def test_a_busy_hub_is_asked_again(self, hub: HubServer, local: Path, tmp_path: Path) -> None:
        hub.busy = 3
        inputs = [f"hf://datasets/me/data/{name}" for name in ("*.jsonl*", "deep")]
        assert build(inputs, tmp_path / "there") == build(local, tmp_path / "here")
        assert hub.busy == 0

    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize("name", ["a.jsonl.zst", "b.jsonl", "deep/c.parquet", "deep/d.csv"])
    def test_an_object_that_changes_is_an_error(
        self, server: S3Server, tmp_path: Path, corpus: dict[str, bytes], name: str, workers: int
    ) -> None:
        with pytest.raises(InputError, match=rf"{name} was changed while it was being read.*--overwrite"):
            self.tamper(
                server, name, lambda s: s.put(name, corpus[name].replace(b"the", b"teh") + b"\n"), tmp_path, workers
            )

    @pytest.mark.parametrize("name", ["a.jsonl.zst", "deep/c.parquet"])
    def test_so_is_one_that_is_deleted(self, server: S3Server, tmp_path: Path, name: str) -> None:
        with pytest.raises(InputError, match=rf"cannot read s3://bucket/data/{name}: there is no such object"):
            self.tamper(server, name, lambda s: s.delete(name), tmp_path, 2)

    def tamper(
        self, server: S3Server, name: str, change: Callable[[ObjectStorage], None], tmp_path: Path, workers: int
    ) -> None:
        """As soon as the inputs are planned with."""
        storage = ObjectStorage("s3://bucket/data")

        def listen(event: Any) -> None:
            if type(event).__name__ == "InputsFound":
                change(storage)

        tokpress.build("s3://bucket/data", out=tmp_path / "s", reporter=listen, **(OPTIONS | {"workers": workers}))

    def test_a_server_that_heeds_no_conditions_is_noticed_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve(ignore_conditions=True) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            storage = ObjectStorage("s3://bucket/data")
            storage.put("b.jsonl", jsonl(["one"] * 50))
            with pytest.raises(InputError, match="was changed while it was being read"):
                self.tamper(server, "b.jsonl", lambda s: s.put("b.jsonl", jsonl(["two"] * 50)), tmp_path, 1)

    def test_a_revision_that_moves_is_read_where_it_was(
        self, hub: HubServer, local: Path, tmp_path: Path, corpus: dict[str, bytes]
    ) -> None:
        dataset = hub.datasets["me/data"]

        def move(event: Any) -> None:
            if type(event).__name__ == "InputsFound":
                dataset.commit(dict.fromkeys(corpus, b"other"))

        inputs = ["hf://datasets/me/data/*.jsonl*", "hf://datasets/me/data/deep"]
        tokpress.build(inputs, out=tmp_path / "there", reporter=move, **OPTIONS)
        assert contents(tmp_path / "there") == build(local, tmp_path / "here")
        with pytest.raises(UsageError, match="holds a finished store of something else"):
            tokpress.build(inputs, out=tmp_path / "there", **OPTIONS)

    def test_a_changed_object_without_a_tag_is_seen_by_its_time(self, server: S3Server) -> None:
        [source] = discover(["s3://bucket/data/b.jsonl"], ReadConfig())
        other = msgspec.structs.replace(source, tag="2020-01-01T00:00:00+00:00 5")
        with pytest.raises(InputError, match="was changed while it was being read"):
            check_unchanged(other)


class TestCredentials:
    def failed(self, inputs: str, tmp_path: Path, **environment: str) -> str:
        command = [sys.executable, "-m", "tokpress", "build", inputs, "--tokenizer", "bytes", "--workers", "2"]
        command += ["--out", str(tmp_path / "s"), "--events", str(tmp_path / "events.jsonl")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
        assert done.returncode in (1, 2), done.stderr
        written = "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
        assert MARKED not in done.stdout + done.stderr + written
        return " ".join(done.stderr.split())

    def test_of_a_bucket_that_are_refused_are_not_shown(self, tmp_path: Path) -> None:
        with serve() as server:
            server.faults = [Fault("403", left=10**6)]
            told = self.failed(
                "s3://bucket/data",
                tmp_path,
                AWS_ENDPOINT_URL=server.endpoint,
                AWS_ACCESS_KEY_ID=MARKED,
                AWS_SECRET_ACCESS_KEY=MARKED,
                AWS_SESSION_TOKEN=MARKED,
            )
        assert "valid and not expired" in told

    def test_of_the_hub_that_are_refused_are_not_shown(self, hub: HubServer, tmp_path: Path) -> None:
        hub.token = "another"
        told = self.failed("hf://datasets/me/data/*.jsonl", tmp_path, HF_TOKEN=MARKED)
        assert "hf auth login" in told

    def test_of_the_hub_are_sent_and_stored_nowhere(
        self, hub: HubServer, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.token = MARKED
        monkeypatch.setenv("HF_TOKEN", MARKED)
        inputs = ["hf://datasets/me/data/*.jsonl*", "hf://datasets/me/data/deep"]
        assert build(inputs, tmp_path / "there", workers=2) == build(local, tmp_path / "here")
        assert not any(
            MARKED.encode() in path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file()
        )


def test_without_the_extra_the_command_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(TokpressError, match=r"pip install 'tokpress\[remote\]'"):
        discover(["s3://nowhere/x.jsonl"], ReadConfig())
