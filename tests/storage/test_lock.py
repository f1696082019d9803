"""One writer a store: a second one is refused and told who is at work, a dead one stands in nobody's way."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tokpress.errors import StoreError
from tokpress.storage.directories import LinkRefused
from tokpress.storage.lock import LOCK, WriterLock

HOLDER = """
import subprocess, sys
from pathlib import Path
from tokpress.storage.lock import WriterLock
with WriterLock(Path(sys.argv[1])):
    heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=sys.stdin, stdout=subprocess.DEVNULL)
    print(heir.pid, flush=True)
    heir.wait()
"""


@contextmanager
def holder(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that holds the lock, and a child of it that outlives it."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        heir = int(process.stdout.readline())  # the lock is held from here on
        try:
            yield process, heir
        finally:
            process.communicate("\n", timeout=30)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestHeld:
    def test_a_second_writer_is_refused_and_told_who_writes(self, store: Path) -> None:
        with holder(store) as (process, _), pytest.raises(StoreError) as refused, WriterLock(store):
            pass
        assert f"{store} is being written by another run" in str(refused.value)
        assert f"process {process.pid} on {socket.gethostname()}" in str(refused.value)

    def test_a_refused_writer_leaves_the_lock_where_it_is(self, store: Path) -> None:
        with WriterLock(store):
            for _ in range(3):
                with pytest.raises(StoreError), WriterLock(store):
                    pass
            assert (store / LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"

    def test_stores_do_not_lock_each_other(self, tmp_path: Path) -> None:
        with WriterLock(tmp_path / "a"), WriterLock(tmp_path / "b"):
            assert (tmp_path / "a" / LOCK).exists()
            assert (tmp_path / "b" / LOCK).exists()


class TestDead:
    def test_a_killed_writer_is_no_obstacle(self, store: Path) -> None:
        with holder(store) as (process, _):
            process.kill()
            process.wait(30)
            assert (store / LOCK).exists()  # it could not remove it
            with WriterLock(store):
                assert (store / LOCK).read_text().startswith(f"process {os.getpid()} ")

    def test_nor_is_what_it_has_started(self, store: Path) -> None:
        """A worker that outlives its coordinator for a moment does not hold the lock."""
        with holder(store) as (process, heir):
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            os.kill(heir, 0)  # it lives
            with WriterLock(store):
                pass

    def test_an_old_longer_name_is_overwritten(self, store: Path) -> None:
        store.mkdir()
        (store / LOCK).write_text("process 1 on " + "long" * 50)
        with WriterLock(store):
            assert (store / LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


class TestReleased:
    def test_leaves_nothing(self, store: Path) -> None:
        store.mkdir()
        with WriterLock(store):
            pass
        assert list(store.iterdir()) == []

    def test_also_after_an_error(self, store: Path) -> None:
        store.mkdir()
        with pytest.raises(KeyboardInterrupt), WriterLock(store):
            raise KeyboardInterrupt
        assert list(store.iterdir()) == []

    def test_a_directory_that_was_made_for_it_goes_if_nothing_was_written(self, store: Path) -> None:
        with WriterLock(store):
            assert store.is_dir()
        assert not store.exists()

    def test_a_directory_with_something_in_it_stays(self, store: Path) -> None:
        with WriterLock(store):
            (store / "plan.json").write_text("{}")
        assert [path.name for path in store.iterdir()] == ["plan.json"]


def after_opening(monkeypatch: pytest.MonkeyPatch, *happenings: Callable[[], object]) -> None:
    """Has something happen between the opening of the lock file and the locking, each time something else."""
    left = list(happenings)
    flock = fcntl.flock

    def meddled(descriptor: int, operation: int) -> None:
        if left:
            left.pop(0)()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", meddled)


class TestRaces:
    def test_a_file_that_was_removed_meanwhile_locks_nothing(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        after_opening(monkeypatch, lambda: (store / LOCK).unlink())
        with WriterLock(store):
            with pytest.raises(StoreError), WriterLock(store):
                pass
            assert (store / LOCK).read_text()

    def test_a_second_try_still_removes_the_directory_that_the_first_made(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        after_opening(monkeypatch, lambda: (store / LOCK).unlink())
        with WriterLock(store):
            pass
        assert not store.exists()

    def test_nor_does_one_that_was_replaced(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def replace() -> None:
            (store / LOCK).unlink()
            (store / LOCK).write_text("another run's")

        after_opening(monkeypatch, replace, replace)
        with WriterLock(store), pytest.raises(StoreError), WriterLock(store):
            pass

    def test_a_directory_that_was_removed_meanwhile_is_made_again(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = os.open
        removed: list[Path] = []

        def remove_first(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if not removed:
                store.rmdir()
                removed.append(store)
            return opened(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", remove_first)
        with WriterLock(store):
            assert (store / LOCK).exists()

    def test_a_file_that_never_stays_is_given_up(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A directory that something else keeps clearing must not keep a run trying for ever."""
        tried: list[int] = []

        def clear() -> None:
            tried.append(len(tried))
            assert len(tried) < 1000
            (store / LOCK).unlink()

        after_opening(monkeypatch, *[clear] * 1001)
        with pytest.raises(OSError, match=str(store)), WriterLock(store):
            pass
        assert len(tried) > 10

    def test_of_many_writers_one_is_inside(self, store: Path) -> None:
        inside: list[int] = []
        most: list[int] = []

        def write(number: int) -> int:
            had = 0
            while had < 20:
                try:
                    with WriterLock(store):
                        inside.append(number)
                        most.append(len(inside))
                        inside.remove(number)
                    had += 1
                except StoreError:
                    continue
            return had

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(write, range(4))) == [20] * 4
        assert set(most) == {1}

    def test_a_link_to_nowhere_is_not_waited_for(self, store: Path) -> None:
        store.symlink_to(store.with_name("nowhere"))
        with pytest.raises(FileNotFoundError), WriterLock(store):
            pass

    def test_a_file_in_its_place_is_an_error(self, store: Path) -> None:
        store.write_text("mine")
        with pytest.raises(NotADirectoryError), WriterLock(store):
            pass
        assert store.read_text() == "mine"

    def test_a_file_system_without_locks_is_no_other_writer(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unsupported(descriptor: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", unsupported)
        with pytest.raises(OSError, match="No locks available"), WriterLock(store):
            pass


class TestLinks:
    """What stands under the lock's name may be somebody else's."""

    @pytest.fixture
    def foreign(self, store: Path) -> Path:
        store.mkdir()
        store.with_name("foreign").write_text("theirs")
        return store.with_name("foreign")

    def test_a_link_is_not_followed(self, store: Path, foreign: Path) -> None:
        (store / LOCK).symlink_to(foreign)
        with pytest.raises(LinkRefused, match=str(store / LOCK)), WriterLock(store):
            pass
        assert foreign.read_text() == "theirs"

    def test_a_file_that_has_another_name_too_is_not_emptied(self, store: Path, foreign: Path) -> None:
        (store / LOCK).hardlink_to(foreign)
        with pytest.raises(LinkRefused, match="hard link"), WriterLock(store):
            pass
        assert foreign.read_text() == "theirs"

    def test_a_pipe_is_no_lock(self, store: Path, foreign: Path) -> None:
        os.mkfifo(store / LOCK)
        with pytest.raises(LinkRefused, match="no ordinary file"), WriterLock(store):
            pass

    def test_what_took_its_name_meanwhile_is_left(self, store: Path) -> None:
        with WriterLock(store):
            (store / LOCK).unlink()
            (store / LOCK).write_text("another run's")
        assert (store / LOCK).read_text() == "another run's"


class TestNoDirectoryCanBe:
    """An error at once, and not one try after the other for ever."""

    def test_in_proc(self) -> None:
        with pytest.raises(OSError, match="no directory can be made there"), WriterLock(Path("/proc/tokpress/store")):
            pass

    def test_below_a_file_which_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        for place in (tmp_path / "file" / "store", tmp_path / "file" / "deep" / "store"):
            with pytest.raises(NotADirectoryError, match=rf"is a file.*{tmp_path / 'file'}'"), WriterLock(place):
                pass

    def test_behind_a_link_to_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for place in (tmp_path / "link", tmp_path / "link" / "store"):
            with pytest.raises((FileExistsError, FileNotFoundError)), WriterLock(place):
                pass
        assert [path.name for path in tmp_path.iterdir()] == ["link"]

    def test_in_a_working_directory_that_was_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(OSError, match=r"no directory can be made there|No such file"), WriterLock(Path("store")):
            pass
