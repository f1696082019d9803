"""A bucket keeps the promises of a storage, on several servers, and when these misbehave."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from s3_server import ENVIRONMENT, Fault, S3Server, serve

from tokpress.errors import UsageError
from tokpress.storage import open_storage, requests, spool
from tokpress.storage.conformance import PROMISES, conform, put_if_absent_has_one_winner
from tokpress.storage.local import LocalStorage
from tokpress.storage.object_store import ObjectStorage
from tokpress.storage.ranged import RANGE_BYTES
from tokpress.storage.requests import ObjectChanged, RequestFailed

MARKED = "SECRETMARK0123456789"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOKPRESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(requests, "_TOO_MANY_PAUSE", 0.002)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


@pytest.fixture
def storage(server: S3Server) -> ObjectStorage:
    return ObjectStorage("s3://bucket/run")


@contextmanager
def process(command: list[str], announced: str, **environment: str) -> Iterator[str]:
    """A server as a process of its own; gives what it announces, by the pattern's first group."""
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    assert started.stdout is not None
    try:
        for line in started.stdout:
            if found := re.search(announced, line):
                yield found[1]
                break
        else:
            pytest.fail(f"{command[0]} ended without a word")
    finally:
        started.kill()
        started.stdout.close()
        started.wait()


def numbered(beginning: str) -> Callable[[], ObjectStorage]:
    numbers = count()
    return lambda: ObjectStorage(f"{beginning}/{next(numbers)}")


class TestConforms:
    @pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
    def test_our_own_server(self, storage: ObjectStorage, promise: Callable[[ObjectStorage], None]) -> None:
        promise(storage)

    @pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
    def test_google_s_interface(
        self, monkeypatch: pytest.MonkeyPatch, server: S3Server, promise: Callable[[ObjectStorage], None]
    ) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
        promise(ObjectStorage("gs://bucket/run"))

    def test_moto(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server of the library that most of Python's world tests its use of S3 with. It keeps conditions, but looks and
        puts in two steps, so that of those who race two may win: that promise is for servers that are one."""
        pytest.importorskip("moto.server", reason="moto is not installed: pip install 'tokpress[dev]'")
        with process([sys.executable, "-m", "moto.server", "-p", "0"], r"Running on (http://\S+)") as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
            make = numbered("s3://bucket/run")
            for promise in PROMISES:
                if promise is not put_if_absent_has_one_winner:
                    promise(make())
            storage = make()
            storage.put("x", b"one", if_absent=True)
            with pytest.raises(FileExistsError):
                storage.put("x", b"two", if_absent=True)

    def test_azurite(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Microsoft's own emulator of Azure's blobs."""
        azurite = os.environ.get("AZURITE") or shutil.which("azurite-blob")
        if azurite is None:
            pytest.skip("azurite is not installed: npm install --global azurite")
        command = [azurite, "--blobPort", "0", "--skipApiVersionCheck", "--silent", "--location", str(tmp_path)]
        command.remove("--silent")
        with process(command, r"listens? (?:at|on) (http://\S+)") as endpoint:
            name, key = "devstoreaccount1", AZURITE_KEY
            monkeypatch.setenv(
                "AZURE_STORAGE_CONNECTION_STRING",
                f"AccountName={name};AccountKey={key};BlobEndpoint={endpoint}/{name}",
            )
            make_container(endpoint, name, key, "container")
            conform(numbered("az://container/run"))


AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # public, for all
)


def make_container(endpoint: str, account: str, key: str, name: str) -> None:
    """The one request that the client library has no call for."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    version = "2021-08-06"
    empty = "\n" * 12
    signed = f"PUT{empty}x-ms-date:{date}\nx-ms-version:{version}\n/{account}/{account}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    url = f"{endpoint}/{account}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


class TestFaults:
    @pytest.mark.parametrize("kind", ["503", "429", "409", "lost", "reset"])
    @pytest.mark.parametrize("methods", ["PUT", "GET|HEAD", "LIST", "DELETE"])
    def test_are_survived(self, server: S3Server, storage: ObjectStorage, kind: str, methods: str) -> None:
        server.faults = [Fault(kind, methods, left=2)]
        storage.put("x", b"abc" * 1000)
        with storage.create("y") as upload:
            upload.write(b"def" * 1000)
        storage.put("z", b"z", if_absent=True)
        assert storage.read("x") == b"abc" * 1000
        with storage.open("y") as file:
            assert file.read() == b"def" * 1000
        assert storage.list() == ["x", "y", "z"]
        assert storage.children() == ["x", "y", "z"]
        storage.delete("z")
        assert sorted(server.contents()) == ["run/x", "run/y"]
        assert len(server.fired) == 2

    def test_a_stalled_connection_is_given_up(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKPRESS_REQUEST_TIMEOUT", "0.2")
        storage = ObjectStorage("s3://bucket/run")
        server.faults = [Fault("stall", "PUT"), Fault("stall", "GET")]
        storage.put("x", b"abc")
        assert storage.read("x") == b"abc"
        assert [kind for kind, *_ in server.fired] == ["stall", "stall"]

    def test_a_lost_answer_is_no_other_writer(self, server: S3Server, storage: ObjectStorage) -> None:
        server.faults = [Fault("lost", "PUT")]
        storage.put("x", b"mine", if_absent=True)
        with pytest.raises(FileExistsError):
            storage.put("x", b"mine", if_absent=True)
        assert [kind for kind, *_ in server.fired] == ["lost"]

    def test_a_conflict_on_a_key_that_is_free_is_tried_again(self, server: S3Server, storage: ObjectStorage) -> None:
        server.faults = [Fault("409", "PUT", left=3)]
        storage.put("x", b"mine", if_absent=True)
        assert storage.read("x") == b"mine"

    def test_parts_that_got_lost_are_put_again(
        self, server: S3Server, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spool, "MULTIPART_BYTES", 10**6)
        monkeypatch.setattr(spool, "PART_BYTES", 300_000)
        data = os.urandom(1_500_000)
        server.faults = [Fault("torn", "POST", skip=1)]
        with storage.create("x") as upload:
            upload.write(data)
        assert server.contents() == {"run/x": data}
        assert [kind for kind, *_ in server.fired] == ["torn"]

    @pytest.mark.parametrize("kind", ["503", "429"])
    def test_a_store_that_stays_busy_is_said_to_be(self, server: S3Server, storage: ObjectStorage, kind: str) -> None:
        storage.put("x", b"abc")
        server.faults = [Fault(kind, left=1000)]
        for ask in (storage.read, storage.stat, storage.size):
            with pytest.raises(RequestFailed, match=f"busy or failing .status {kind}.") as told:
                ask("x")
            assert told.value.filename == "s3://bucket/run/x"

    def test_a_bucket_that_ignores_conditions_is_found(self, monkeypatch: pytest.MonkeyPatch, server: S3Server) -> None:
        assert ObjectStorage("s3://bucket/run").keeps_conditions()
        with serve(ignore_conditions=True) as liar:
            monkeypatch.setenv("AWS_ENDPOINT_URL", liar.endpoint)
            assert not ObjectStorage("s3://bucket/run").keeps_conditions()
            assert liar.contents() == {}


class TestReads:
    def test_an_object_that_changes_while_it_is_read_is_an_error(
        self, server: S3Server, storage: ObjectStorage
    ) -> None:
        storage.put("x", os.urandom(RANGE_BYTES * 2))
        with storage.open("x") as file:
            file.read(10)
            storage.put("x", os.urandom(RANGE_BYTES * 2))
            file.seek(RANGE_BYTES + 10)
            with pytest.raises(ObjectChanged, match="changed since"):
                file.read(10)

    def test_a_version_can_be_asked_for(self, storage: ObjectStorage) -> None:
        storage.put("x", b"one")
        version = storage._must_exist("x").version
        storage.put("x", b"two")
        with storage.open("x", version=version) as file, pytest.raises(ObjectChanged):
            file.read()

    def test_from_end_to_end_gets_each_byte_once(self, server: S3Server, storage: ObjectStorage) -> None:
        data = os.urandom(RANGE_BYTES * 3 + 12345)
        storage.put("x", data)
        server.requests.clear()
        got = bytearray()
        with storage.open("x") as file:
            while part := file.read(10**6):
                got += part
        assert bytes(got) == data
        assert server.sent == len(data)
        assert [method for method, _ in server.requests].count("GET") <= 6

    def test_a_look_at_the_end_gets_little(self, server: S3Server, storage: ObjectStorage) -> None:
        storage.put("x", os.urandom(RANGE_BYTES * 3))
        with storage.open("x") as file:
            file.seek(RANGE_BYTES * 3 - 8)
            assert len(file.read(8)) == 8
        assert server.sent <= 64 * 1024

    def test_over_http(self, server: S3Server, storage: ObjectStorage) -> None:
        storage.put("x/y", b"abc" * 1000)
        plain = open_storage(f"{server.endpoint}/bucket/run")
        assert plain.read("x/y") == b"abc" * 1000
        assert plain.size("x/y") == 3000
        assert plain.stat("none") is None
        with plain.open("x/y") as file:
            file.seek(3)
            assert file.read(3) == b"abc"
        with pytest.raises(UsageError, match="read-only"):
            plain.put("x", b"")
        with pytest.raises(UsageError, match="cannot be listed"):
            plain.list()


class TestCopies:
    def test_a_copy_is_made_once(self, server: S3Server, storage: ObjectStorage) -> None:
        storage.put("x", b"abc" * 1000)
        assert [storage.local("x").read_bytes() for _ in range(3)] == [b"abc" * 1000] * 3
        assert server.sent == 3000

    def test_one_that_was_damaged_is_got_again(self, server: S3Server, storage: ObjectStorage) -> None:
        storage.put("x", b"abc" * 1000)
        storage.local("x").write_bytes(b"abd" * 1000)
        assert ObjectStorage("s3://bucket/run").local("x").read_bytes() == b"abc" * 1000

    def test_one_of_an_older_version_is_not_used(self, storage: ObjectStorage) -> None:
        storage.put("x", b"abc")
        old = storage.local("x")
        storage.put("x", b"def")
        assert (old.read_bytes(), storage.local("x").read_bytes()) == (b"abc", b"def")

    def test_are_bounded(self, server: S3Server, tmp_path: Path) -> None:
        storage = ObjectStorage("s3://bucket/run", cache_dir=tmp_path / "small", cache_bytes=2500)
        for key in "abcd":
            storage.put(key, key.encode() * 1000)
            assert storage.local(key).read_bytes() == key.encode() * 1000
            assert sum(path.stat().st_size for path in (tmp_path / "small" / "objects").iterdir()) <= 2500
        storage.put("large", bytes(2501))
        with pytest.raises(UsageError, match=r"takes 2,501 bytes, and the cache .* is bounded to 2,500"):
            storage.local("large")


class TestNames:
    def test_what_is_no_address_is_a_path(self, tmp_path: Path) -> None:
        assert isinstance(open_storage(str(tmp_path)), LocalStorage)
        assert isinstance(open_storage("s3://bucket/x"), ObjectStorage)

    @pytest.mark.parametrize(
        ("given", "url"),
        [
            ("s3://b", "s3://b"),
            ("s3://b/", "s3://b"),
            ("s3a://b//x/", "s3://b/x"),
            ("gcs://b/x", "gs://b/x"),
            ("https://host:1/x/y?signature=1#part", "https://host:1/x/y"),
        ],
    )
    def test_are_written_one_way(self, given: str, url: str) -> None:
        assert ObjectStorage(given).url == url

    def test_a_password_has_no_place_in_one(self) -> None:
        with pytest.raises(UsageError, match="has a name or a password") as told:
            ObjectStorage(f"https://me:{MARKED}@host/x")
        assert MARKED not in str(told.value)

    def test_are_all_that_another_process_gets(self, storage: ObjectStorage) -> None:
        storage.put("x", b"abc")
        sent = pickle.dumps(storage)
        assert b"SECRET" not in sent
        assert pickle.loads(sent).read("x") == b"abc"


class TestCredentials:
    def test_are_in_no_error(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", MARKED)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", MARKED)
        monkeypatch.setenv("AWS_SESSION_TOKEN", MARKED)
        storage = ObjectStorage("s3://bucket/run")
        server.faults = [Fault("503", left=1000)]
        with pytest.raises(OSError, match="busy") as told:
            storage.read("x")
        chain: BaseException | None = told.value
        while chain is not None:
            assert MARKED not in repr(chain)
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)

    def test_of_a_profile_are_found(self, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from tokpress.storage.credentials import s3_settings

        (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
        (tmp_path / "config").write_text("[profile mine]\nregion = eu-west-1\nendpoint_url = http://here\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name)
        found = s3_settings()
        assert (found["access_key_id"], found["secret_access_key"]) == ("a", "b")
        assert (found["region"], found["endpoint"]) == ("eu-west-1", "http://here")


def test_requests_in_flight_are_limited(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setenv("TOKPRESS_REQUESTS", "2")
    requests._slots.cache_clear()
    try:
        at_once, most = 0, 0

        def call() -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.01)  # long enough for others to begin, if they may
            at_once -= 1

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: requests.request("x", call), range(20)))
        assert most <= 2
    finally:
        requests._slots.cache_clear()
