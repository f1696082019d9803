"""Files are whole or not there, and what goes in is counted and hashed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import xxhash
from conftest import file_checksum
from hypothesis import given
from hypothesis import strategies as st

from tokpress.storage.base import checksum
from tokpress.storage.local import LocalStorage, is_temporary


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestUpload:
    def test_exists_from_commit_on(self, tmp_path: Path) -> None:
        file = LocalStorage(tmp_path).create("x")
        file.write(b"abc")
        assert [is_temporary(name) for name in names(tmp_path)] == [True]
        file.commit()
        assert names(tmp_path) == ["x"]
        assert (tmp_path / "x").read_bytes() == b"abc"

    def test_leaves_nothing_when_aborted(self, tmp_path: Path) -> None:
        file = LocalStorage(tmp_path).create("x")
        file.write(b"abc")
        file.abort()
        assert names(tmp_path) == []

    def test_aborting_after_commit_changes_nothing(self, tmp_path: Path) -> None:
        file = LocalStorage(tmp_path).create("x")
        file.write(b"abc")
        file.commit()
        file.abort()
        assert (tmp_path / "x").read_bytes() == b"abc"

    def test_replaces_what_an_earlier_run_left(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"old")
        LocalStorage(tmp_path).create("x").write(b"older, and longer")
        LocalStorage(tmp_path).delete_abandoned("")
        file = LocalStorage(tmp_path).create("x")
        file.write(b"new")
        file.commit()
        assert names(tmp_path) == ["x"]
        assert (tmp_path / "x").read_bytes() == b"new"

    def test_takes_anything_with_a_buffer(self, tmp_path: Path) -> None:
        file = LocalStorage(tmp_path).create("x")
        for data in (b"ab", bytearray(b"cd"), memoryview(b"ef"), np.array([1, 2], "<u2"), np.empty(0, "<u4"), b""):
            file.write(data)
        file.commit()
        written = b"abcdef\1\0\2\0"
        assert (tmp_path / "x").read_bytes() == written
        assert (file.bytes, file.checksum) == (len(written), checksum(written))

    def test_goes_on_after_a_short_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = LocalStorage(tmp_path).create("x")
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
        file.write(b"0123456789")
        file.commit()
        assert (tmp_path / "x").read_bytes() == b"0123456789"

    def test_is_synced_before_it_has_its_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            seen.append(names(tmp_path))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        LocalStorage(tmp_path).put("x", b"abc")
        # The file under its temporary name, then the directory with the new one.
        assert [[is_temporary(name) for name in found] for found in seen] == [[True], [False]]

    def test_leaves_nothing_when_it_cannot_be_committed(self, tmp_path: Path) -> None:
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "y").touch()
        with pytest.raises(OSError, match="x"), LocalStorage(tmp_path).create("x") as file:
            file.write(b"abc")
        assert names(tmp_path) == ["x"]


def test_the_root_s_own_name_is_synced_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory's name stands in the one around it: that is what has to be on the disk."""
    root = tmp_path / "parent" / "store"
    root.mkdir(parents=True)
    synced, fsync = [], os.fsync

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    LocalStorage(root).anchor()
    assert synced == [str(root.parent)]


def test_what_is_no_file_is_no_object(tmp_path: Path) -> None:
    """A reader of a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    storage = LocalStorage(tmp_path)
    assert [storage.stat(name) for name in ("pipe", "directory")] == [None, None]
    assert not storage.exists("pipe")


class TestPut:
    def test_writes_all_or_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        LocalStorage(tmp_path).put("x", b"old")

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            LocalStorage(tmp_path).put("x", b"new")
        assert names(tmp_path) == ["x"]
        assert (tmp_path / "x").read_bytes() == b"old"

    def test_leaves_no_file_handle_open(self, tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - also counts its own, both times
        LocalStorage(tmp_path).put("x", b"abc")
        LocalStorage(tmp_path).barrier("")
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


class TestAbandoned:
    def test_what_attempts_left_that_died_goes_and_nothing_else(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path)
        storage.prepare("a", "b")
        for key in ("x", "a/x", "a/.hidden", "a/x.tmp", "a/.x.tmp"):
            storage.put(key, b"kept")
        for key in ("x", "a/x", "a/new", "b/x"):
            storage.create(key).write(b"a part")
        storage.delete_abandoned("", "a")
        assert names(tmp_path) == ["a", "b", "x"]
        assert names(tmp_path / "a") == [".hidden", ".x.tmp", "x", "x.tmp"]
        assert [is_temporary(name) for name in names(tmp_path / "b")] == [True]  # of which nothing was said


class TestChecksums:
    @given(st.lists(st.binary(max_size=50)))
    def test_do_not_depend_on_how_the_bytes_came(self, parts: list[bytes]) -> None:
        digest = xxhash.xxh3_64()
        for part in parts:
            digest.update(part)
        assert checksum(b"".join(parts)) == digest.hexdigest()

    @pytest.mark.parametrize("size", [0, 1, 4 * 1024**2, 4 * 1024**2 + 1])
    def test_of_a_file_is_that_of_its_bytes(self, tmp_path: Path, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        (tmp_path / "x").write_bytes(data)
        assert file_checksum(tmp_path / "x") == checksum(data) == xxhash.xxh3_64_hexdigest(data)


class TestWithoutLinks:
    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
    def test_an_object_that_is_there_is_not_put_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr(os, "link", refuse)
        LocalStorage(tmp_path).put("a", b"first", if_absent=True)
        with pytest.raises(FileExistsError):
            LocalStorage(tmp_path).put("a", b"second", if_absent=True)
        assert names(tmp_path) == ["a"]
        assert (tmp_path / "a").read_bytes() == b"first"

    def test_a_file_has_its_new_name_and_no_other_gives_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no")

        monkeypatch.setattr(os, "link", refuse)
        storage = LocalStorage(tmp_path)
        for name in ("a", "b"):
            storage.put(name, name.encode())
        storage.rename_new("a", "c")
        assert (tmp_path / "c").read_bytes() == b"a"
        with pytest.raises(FileExistsError):
            storage.rename_new("b", "c")
        assert (tmp_path / "c").read_bytes() == b"a"


class TestLink:
    def test_is_a_link_and_has_no_checksum(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"abc")
        assert LocalStorage(tmp_path).link(tmp_path / "a", "b") is None
        assert (tmp_path / "a").samefile(tmp_path / "b")

    @pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
    def test_is_a_copy_where_links_cannot_be(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refuse(source: Path, name: str, *, dst_dir_fd: int) -> None:
            raise OSError(number, "no")

        (tmp_path / "a").write_bytes(b"abc" * 10**6)
        monkeypatch.setattr(os, "link", refuse)
        assert LocalStorage(tmp_path).link(tmp_path / "a", "b") == file_checksum(tmp_path / "a")
        assert not (tmp_path / "a").samefile(tmp_path / "b")
        assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()

    def test_other_errors_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            LocalStorage(tmp_path).link(tmp_path / "none", "b")
        assert names(tmp_path) == []

    def test_replaces_what_is_there_and_not_what_it_is_linked_to(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"abc")
        (tmp_path / "other").write_bytes(b"other")
        LocalStorage(tmp_path).link(tmp_path / "other", "b")
        LocalStorage(tmp_path).link(tmp_path / "a", "b", copy=True)
        assert (tmp_path / "b").read_bytes() == b"abc"
        assert (tmp_path / "other").read_bytes() == b"other"


class TestReserved:
    def test_is_written_in_any_order(self, tmp_path: Path) -> None:
        for offset, data in ((4, b"efgh"), (0, b"abcd")):
            LocalStorage(tmp_path).reserve("x", 8)
            LocalStorage(tmp_path).write_at("x", offset, [data[:1], data[1:]])
        assert (tmp_path / "x").read_bytes() == b"abcdefgh"

    def test_takes_its_room_at_once(self, tmp_path: Path) -> None:
        LocalStorage(tmp_path).reserve("x", 10**6)
        assert (tmp_path / "x").stat().st_blocks * 512 >= 10**6

    def test_may_be_empty(self, tmp_path: Path) -> None:
        LocalStorage(tmp_path).reserve("x", 0)
        assert (tmp_path / "x").read_bytes() == b""


def test_a_directory_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "b").mkdir()
    LocalStorage(tmp_path).rename("a", "b")
    assert names(tmp_path) == ["b"]
    (tmp_path / "c").mkdir()
    with pytest.raises(OSError, match="not empty"):
        LocalStorage(tmp_path).rename("c", "b")


class TestRemoveTree:
    def test_leaves_nothing_and_follows_no_link(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
        elsewhere.mkdir()
        for path in (tmp_path / "tree" / "x", tmp_path / "tree" / "a" / "b" / "y", elsewhere / "kept"):
            path.write_bytes(b"data")
        (tmp_path / "tree" / "link").symlink_to(elsewhere)
        for prefix in ("tree/link", "tree"):
            LocalStorage(tmp_path).delete_prefix(prefix)
        assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
        assert (elsewhere / "kept").is_file()

    def test_of_what_is_not_there(self, tmp_path: Path) -> None:
        LocalStorage(tmp_path).delete_prefix("tree")
