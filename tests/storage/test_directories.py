"""What is written stays below the directory that was named: no link leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tokpress.storage.directories import LinkRefused, opened
from tokpress.storage.local import LocalStorage


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A directory of somebody else, and a storage beside it with a link to it."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    for name in ("a", ".a.0123456789abcdef.tmp"):
        (directory / name).write_bytes(b"theirs")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(directory)
    return directory


WRITES: dict[str, Callable[[LocalStorage], object]] = {
    "create": lambda storage: storage.create("link/a"),
    "put": lambda storage: storage.put("link/a", b"ours"),
    "put if absent": lambda storage: storage.put("link/b", b"ours", if_absent=True),
    "delete": lambda storage: storage.delete("link/a"),
    "delete abandoned": lambda storage: storage.delete_abandoned("link"),
    "delete a prefix": lambda storage: storage.delete_prefix("link/deep"),
    "prepare": lambda storage: storage.prepare("link"),
    "prepare below": lambda storage: storage.prepare("link/new"),
    "barrier": lambda storage: storage.barrier("link"),
    "link": lambda storage: storage.link(storage.root / "own", "link/a"),
    "reserve": lambda storage: storage.reserve("link/a", 100),
    "write at": lambda storage: storage.write_at("link/a", 0, [b"ours"]),
    "rename": lambda storage: storage.rename("own", "link/own"),
    "rename from": lambda storage: storage.rename("link/a", "moved"),
    "below": lambda storage: storage.below("link").put("a", b"ours"),
    "lock": lambda storage: storage.below("link").lock().__enter__(),
}


@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_written_through_a_link(foreign: Path, tmp_path: Path, write: str) -> None:
    (foreign / "deep").mkdir()
    (tmp_path / "root" / "own").write_bytes(b"ours")
    with pytest.raises(LinkRefused, match=str(tmp_path / "root" / "link")):
        WRITES[write](LocalStorage(tmp_path / "root"))
    assert sorted(path.name for path in foreign.iterdir()) == [".a.0123456789abcdef.tmp", "a", "deep"]
    assert (foreign / "a").read_bytes() == b"theirs"


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_nor_into_a_file_that_is_one(foreign: Path, tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    storage = LocalStorage(tmp_path / "root")
    plant(tmp_path / "root" / "x", foreign / "a")
    with pytest.raises(LinkRefused):
        storage.reserve("x", 100)
    with pytest.raises(LinkRefused):
        storage.write_at("x", 0, [b"ours"])
    storage.put("x", b"ours")  # takes the name, and leaves what had it
    assert (foreign / "a").read_bytes() == b"theirs"
    assert (tmp_path / "root" / "x").read_bytes() == b"ours"


def test_what_the_user_named_may_be_a_link(foreign: Path, tmp_path: Path) -> None:
    LocalStorage(tmp_path / "root" / "link").put("b", b"ours")
    assert (foreign / "b").read_bytes() == b"ours"


def test_who_reads_follows_links(foreign: Path, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    assert storage.read("link/a") == b"theirs"
    assert storage.links("") == ["link"]


def test_a_directory_that_is_replaced_by_a_link_meanwhile_is_still_the_old_one(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "root" / "own").mkdir()
    with opened(os, tmp_path / "root", ["own"]) as directory:
        (tmp_path / "root" / "own").rename(tmp_path / "root" / "aside")
        (tmp_path / "root" / "own").symlink_to(foreign)
        os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    assert (tmp_path / "root" / "aside" / "new").exists()
    assert not (foreign / "new").exists()


def test_an_error_names_the_whole_path(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for key in ("none/a", "none/deep/a"):
        with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
            storage.create(key)
