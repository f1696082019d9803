"""A bucket as one run writes it: late processes of a run that was replaced change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from s3_server import ENVIRONMENT, Fault, S3Server, serve

from tokpress.storage import open_run, open_storage, requests, spool
from tokpress.storage.base import Storage, WriteAgain
from tokpress.storage.conformance import PROMISES
from tokpress.storage.guarded import GuardedStorage, is_of_another_run
from tokpress.storage.object_store import ObjectStorage
from tokpress.storage.once import create_or_read

BIN, RECEIPT, REJECTS = "shards/train-00000-000.bin", "shards/train-00000-000.json", "rejects/00000-000.jsonl"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with serve() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


def begin(run: str) -> Storage:
    """A run that goes on from now, in the place of the one before."""
    storage = open_storage("s3://bucket/store")
    storage.put("run.json", b'{"id": "%s"}' % run.encode())
    return open_run(storage, run)


def write(storage: Storage, key: str, data: bytes) -> None:
    with storage.create(key) as file:
        file.write(data)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_keeps(promise: Callable[[Storage], None]) -> None:
    class WithoutTheRecord(GuardedStorage):
        def list(self, prefix: str = "") -> list[str]:
            return [key for key in super().list(prefix) if key != "run.json"]

        def children(self, prefix: str = "") -> Sequence[str]:
            return [name for name in super().children(prefix) if name != "run.json"]

    begin("one")
    storage = open_storage("s3://bucket/store")
    assert isinstance(storage, ObjectStorage)
    promise(WithoutTheRecord(storage, "one"))


@pytest.fixture(params=["whole", "in parts"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in parts":
        monkeypatch.setattr(spool, "MULTIPART_BYTES", 2)
        monkeypatch.setattr(spool, "PART_BYTES", 3)


@pytest.mark.usefixtures("_sizes")
class TestReplaced:
    def test_one_of_the_old_run_replaces_nothing(self) -> None:
        old = begin("old")
        write(old, BIN, b"of the old")
        new = begin("new")
        write(new, BIN, b"of the new")
        old._asked = float("inf")  # type: ignore[attr-defined]  # it is frozen between its look and what follows
        with pytest.raises(FileNotFoundError, match="replaced by another"):
            write(old, BIN, b"of the old")
        assert new.read(BIN) == b"of the new"

    def test_what_it_creates_is_replaced_and_not_read(self) -> None:
        old, new = begin("old"), begin("new")
        old._asked = float("inf")  # type: ignore[attr-defined]
        write(old, BIN, b"of the old")
        create_or_read(old, RECEIPT, b"old receipt")
        with pytest.raises(FileNotFoundError):
            new.read(RECEIPT)
        assert not new.exists(RECEIPT)
        write(new, BIN, b"of the new")
        assert create_or_read(new, RECEIPT, b"new receipt") == b"new receipt"
        assert (new.read(BIN), new.read(RECEIPT)) == (b"of the new", b"new receipt")

    def test_nothing_is_created_once_the_run_is_ended(self) -> None:
        old = begin("old")
        open_storage("s3://bucket/store").delete("run.json")
        for key in (BIN, "run/old/attempt.json"):
            with pytest.raises(FileNotFoundError):
                old.put(key, b"late")
        assert not old.exists(BIN)

    def test_what_was_replaced_meanwhile_is_looked_at_again(self, server: S3Server) -> None:
        """It was of an older run when it was seen, and is of this one when it is to be replaced."""
        begin("oldest").put(BIN, b"of the oldest")
        one = begin("new")
        twin = open_run(open_storage("s3://bucket/store"), "new")

        def meanwhile(method: str, key: str) -> None:
            if method == "GET" and key.endswith("run.json") and RECEIPT not in str(server.contents().keys()):
                server.before = lambda *_: None
                write(twin, BIN, b"of a twin")
                twin.put(RECEIPT, b"a receipt", if_absent=True)

        one._asked = float("inf")  # type: ignore[attr-defined]
        server.before = meanwhile
        with pytest.raises(WriteAgain):
            write(one, BIN, b"otherwise")
        assert one.read(BIN) == b"of a twin"


class TestTwins:
    def test_write_the_same_again(self, server: S3Server) -> None:
        one, twin = begin("run"), open_run(open_storage("s3://bucket/store"), "run")
        write(one, BIN, b"same")
        before = server.contents()
        write(twin, BIN, b"same")
        assert server.contents() == before

    def test_otherwise_as_long_as_no_receipt_vouches_for_it(self) -> None:
        one, twin = begin("run"), open_run(open_storage("s3://bucket/store"), "run")
        for key in (BIN, REJECTS):
            write(one, key, b"first")
            write(twin, key, b"second")
            assert one.read(key) == b"second"
        create_or_read(twin, RECEIPT, b"receipt")
        for key in (BIN, REJECTS):
            with pytest.raises(WriteAgain, match="another machine"):
                write(one, key, b"first")
            assert one.read(key) == b"second"

    def test_a_receipt_is_never_replaced(self) -> None:
        one, twin = begin("run"), open_run(open_storage("s3://bucket/store"), "run")
        assert create_or_read(one, RECEIPT, b"first") == b"first"
        assert create_or_read(twin, RECEIPT, b"second") == b"first"

    @pytest.mark.parametrize("kind", ["lost", "503", "409", "reset"])
    def test_an_answer_that_got_lost_is_no_other_writer(self, server: S3Server, kind: str) -> None:
        one = begin("run")
        server.faults = [Fault(kind, "PUT", "shards/")]
        create_or_read(one, RECEIPT, b"receipt")
        server.faults = [Fault(kind, "PUT", "shards/")]
        write(one, BIN, b"data")
        assert (one.read(RECEIPT), one.read(BIN)) == (b"receipt", b"data")
        begin("next").put(BIN, b"other")
        server.faults = [Fault(kind, "PUT", "shards/")]
        write(begin("last"), BIN, b"data")
        assert begin("last").read(BIN) == b"data"


def test_what_has_no_mark_is_of_whoever_goes_on() -> None:
    """Of a store that an older version began."""
    open_storage("s3://bucket/store").put(RECEIPT, b"receipt")
    run = begin("run")
    assert run.read(RECEIPT) == b"receipt"
    assert create_or_read(run, RECEIPT, b"other") == b"receipt"


def test_what_another_run_left_is_told_from_what_is_the_store_s() -> None:
    begin("old").put(BIN, b"")
    new, plain = begin("new"), open_storage("s3://bucket/store")
    new.put("manifest.json", b"")
    new.put(REJECTS, b"")
    plain.put("shards/unmarked.bin", b"")
    told = {
        key: is_of_another_run(plain, key, "manifest.json") for key in (BIN, REJECTS, "shards/unmarked.bin", "gone")
    }
    assert told == {BIN: True, REJECTS: False, "shards/unmarked.bin": False, "gone": False}
