"""Nobody writes through a fence that is closed, however far it had come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokpress.storage import open_run
from tokpress.storage.local import LocalStorage
from tokpress.storage.once import create_or_read


@pytest.fixture
def directory(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path)
    storage.prepare("run", "run/1", "shards")
    return storage


def test_what_was_written_is_in_its_place_and_nowhere_else(directory: LocalStorage) -> None:
    fenced = open_run(directory, "1")
    with fenced.create("shards/a.bin") as upload:
        upload.write(b"abc")
    fenced.put("shards/a.json", b"{}")
    assert directory.list() == ["shards/a.bin", "shards/a.json"]
    assert fenced.read("shards/a.bin") == b"abc"
    assert upload.checksum == directory.checksum("shards/a.bin")


def test_what_was_given_up_leaves_nothing(directory: LocalStorage) -> None:
    upload = open_run(directory, "1").create("shards/a.bin")
    upload.write(b"abc")
    upload.abort()
    assert directory.list() == []


def test_an_object_is_created_once(directory: LocalStorage) -> None:
    fenced = open_run(directory, "1")
    assert create_or_read(fenced, "a", b"first") == b"first"
    assert create_or_read(fenced, "a", b"second") == b"first"
    with pytest.raises(FileExistsError):
        fenced.put("a", b"third", if_absent=True)
    assert directory.list() == ["a"]


def test_once_it_is_closed_nothing_comes_through(directory: LocalStorage) -> None:
    fenced = open_run(directory, "1")
    begun = fenced.create("shards/a.bin")
    begun.write(b"abc")
    directory.delete_prefix("run")
    with pytest.raises(FileNotFoundError):
        begun.commit()
    with pytest.raises(FileNotFoundError):
        fenced.create("shards/b.bin")
    with pytest.raises(FileNotFoundError):
        fenced.put("shards/b.json", b"{}", if_absent=True)
    assert directory.list() == []


def test_a_second_fence_around_one_is_the_same(directory: LocalStorage) -> None:
    fenced = open_run(directory, "1")
    assert open_run(fenced, "1") is fenced


def test_what_is_deleted_is_gone(directory: LocalStorage) -> None:
    fenced = open_run(directory, "1")
    for key in ("a", "shards/a.bin", "shards/b.bin"):
        fenced.put(key, b"abc")
    fenced.delete("a")
    assert directory.list() == ["shards/a.bin", "shards/b.bin"]
    fenced.delete_prefix("shards")
    assert directory.list() == []
