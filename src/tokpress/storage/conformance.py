"""What every storage must do, as a suite that any storage can be put through: one of ours or yours.

In: a function that gives an empty storage, each time another one. Out: nothing, or a `ConformanceError` that names the
promise that is broken. No test framework is needed:

    from tokpress.storage.conformance import conform
    conform(lambda: MyStorage(new_bucket()))

To see each promise as a test of its own, parametrise over `PROMISES`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tokpress.storage.base import Storage, checksum

Make = Callable[[], Storage]
_LARGE_BYTES = 3_000_000
_RACERS = 8


class ConformanceError(AssertionError):
    """A storage breaks a promise."""


def conform(make: Make) -> None:
    """Checks every promise; raises ConformanceError at the first one that is broken."""
    for promise in PROMISES:
        promise(make())


def what_was_put_is_read(storage: Storage) -> None:
    storage.prepare("a")
    for key, data in {"x": b"", "a/y": b"abc", "z.json": bytes(range(256)) * 1000}.items():
        storage.put(key, data)
        _require(storage.read(key) == data, f"{key} does not hold what was put there")
        _require(storage.size(key) == len(data), f"{key} does not have the size of what was put there")
        _require(storage.checksum(key) == checksum(data), f"{key} has another checksum than its bytes")
        _require(storage.local(key).read_bytes() == data, f"{key} as a local file is something else")


def what_is_absent_is_said(storage: Storage) -> None:
    _require(storage.stat("none") is None, "stat finds an object that is not there")
    _require(not storage.exists("none/deeper"), "an object exists below a prefix that does not")
    for ask in (storage.read, storage.size, storage.checksum):
        try:
            ask("none")
        except FileNotFoundError:
            continue
        raise ConformanceError(f"{ask.__name__} of an object that is not there raises no FileNotFoundError")
    storage.delete("none")
    storage.delete_prefix("none")
    _require(storage.list("none") == [], "there are objects below a prefix that does not exist")


def an_upload_is_whole_or_not_there(storage: Storage) -> None:
    data = np.arange(_LARGE_BYTES // 4, dtype="<u4")
    upload = storage.create("x")
    upload.write(data[:1000])
    _require(storage.stat("x") is None and storage.list() == [], "an object is seen before it is committed")
    upload.write(data[1000:])
    upload.write(b"")
    _require(
        (upload.bytes, upload.checksum) == (data.nbytes, checksum(data.tobytes())), "an upload miscounts its bytes"
    )
    upload.commit()
    _require(storage.read("x") == data.tobytes(), "a committed object does not hold what was written")
    upload.abort()
    _require(storage.exists("x"), "abort after commit removes the object")


def an_upload_that_fails_leaves_nothing(storage: Storage) -> None:
    storage.put("x", b"old")
    for key in ("x", "y"):
        try:
            with storage.create(key) as upload:
                upload.write(b"new")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    _require(storage.read("x") == b"old", "an upload that was aborted replaced the object")
    _require(storage.list() == ["x"], f"an upload that was aborted left {storage.list()}")


def two_writers_do_not_meet(storage: Storage) -> None:
    first, second = storage.create("x"), storage.create("x")
    first.write(b"first, and a good deal longer")
    second.write(b"second")
    second.commit()
    first.write(b", to the end")
    _require(storage.read("x") == b"second", "a writer changes what another one has committed")
    first.commit()
    _require(storage.read("x") == b"first, and a good deal longer, to the end", "the last to commit does not stand")


def put_if_absent_has_one_winner(storage: Storage) -> None:
    def race(number: int) -> bool:
        try:
            storage.put("x", b"%d" % number, if_absent=True)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(_RACERS) as pool:
        won = list(pool.map(race, range(_RACERS)))
    _require(won.count(True) == 1, f"{won.count(True)} of {_RACERS} writers were told that theirs was the first")
    _require(storage.read("x") == b"%d" % won.index(True), "the object is not the winner's")
    _require(storage.list() == ["x"], "those who lost left something behind")
    same = b"the very same bytes"
    storage.put("y", same, if_absent=True)
    try:
        storage.put("y", same, if_absent=True)
    except FileExistsError:
        return
    raise ConformanceError("one who puts what is there already is told that theirs was the first")


def replacing_changes_the_version(storage: Storage) -> None:
    storage.put("x", b"a")
    before = storage.stat("x")
    storage.put("x", b"bb")
    _require(before != storage.stat("x"), "a replaced object has the version of the old one")


def lists_are_sorted_and_deep(storage: Storage) -> None:
    storage.prepare("a", "a/b", "ab")
    keys = ["a/1", "a/b/2", "a/b/10", "ab/3", "c"]
    for key in keys:
        storage.put(key, b"")
    storage.create("a/unfinished").write(b"x")
    _require(storage.list() == sorted(keys), f"the list is {storage.list()}")
    _require(storage.list("a") == ["a/1", "a/b/10", "a/b/2"], f"the list of a prefix is {storage.list('a')}")
    _require(list(storage.children()) == ["a", "ab", "c"], f"directly under the root are {storage.children()}")
    _require(list(storage.children("a")) == ["1", "b"], f"directly under a prefix are {storage.children('a')}")
    inside = storage.below("a")
    _require(inside.list() == ["1", "b/10", "b/2"], f"below a prefix the list is {inside.list()}")
    _require(inside.read("1") == b"", "below a prefix an object is not found")


def only_attempts_are_abandoned(storage: Storage) -> None:
    storage.prepare("a")
    for key in ("x", "a/y"):
        storage.put(key, b"kept")
        storage.create(key).write(b"never committed")
    storage.delete_abandoned("", "a")
    _require(storage.list() == ["a/y", "x"], f"of what was committed there is {storage.list()}")
    _require(storage.read("a/y") == b"kept", "an attempt that was abandoned changed the object")


def removing_removes(storage: Storage) -> None:
    storage.prepare("a", "a/b")
    for key in ("a/1", "a/b/2", "c"):
        storage.put(key, b"x")
    storage.delete("c")
    storage.delete_prefix("a")
    storage.barrier("")
    _require(storage.list() == [], f"what was removed is still there: {storage.list()}")


def no_key_leads_out(storage: Storage) -> None:
    for key in ("../x", "a/../../x", "/x"):
        try:
            storage.put(key, b"x")
        except (ValueError, OSError):
            continue
        raise ConformanceError(f"an object was put at {key!r}")


def opens_at_any_position(storage: Storage) -> None:
    storage.put("x", bytes(range(256)))
    with storage.open("x") as file:
        file.seek(250)
        _require(file.read() == bytes(range(250, 256)), "reading does not begin where it was told to")
        file.seek(10)
        _require(file.read(3) == b"\n\v\f", "going back does not work")


PROMISES: tuple[Callable[[Storage], None], ...] = (
    what_was_put_is_read,
    what_is_absent_is_said,
    an_upload_is_whole_or_not_there,
    an_upload_that_fails_leaves_nothing,
    two_writers_do_not_meet,
    put_if_absent_has_one_winner,
    replacing_changes_the_version,
    lists_are_sorted_and_deep,
    only_attempts_are_abandoned,
    removing_removes,
    no_key_leads_out,
    opens_at_any_position,
)


def _require(kept: bool, broken: str) -> None:
    if not kept:
        raise ConformanceError(broken)
