"""A disk that loses, when the power fails, whatever it was not told to sync.

`Disk` stands in for `os` in a `LocalStorage` and writes down every change in the order in which it happened.
`after_power_loss` makes the directory that a machine might find when it comes back after any of them: of each file what was
synced, and of the rest nothing, a part, or other bytes; of each directory what was synced, and of the changes after that
the first few, as a journal would keep them. It promises no more than POSIX does: a name is kept when the directory that it
stands in was synced (for a rename that is the new one), and a file that somebody else wrote when the file was.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SEED = int(os.environ.get("TOKPRESS_CRASH_SEED", "0"))
_GAP_BYTES = 64  # bytes that are equal by chance do not end a stretch; one that another part has written is longer


@dataclass(eq=False)
class File:
    """What was written into one file, whatever its names are by now."""

    data: bytearray = field(default_factory=bytearray)
    writes: int = 0


@dataclass(frozen=True)
class Change:
    """One of: write (`data` from `offset` on), sync-file (of it the first `writes`), link, rename, unlink, mkdir,
    sync-directory."""

    kind: str
    path: Path = Path()
    file: File | None = None
    to: Path | None = None
    offset: int = 0
    data: bytes = b""
    writes: int = 0


class QuickDisk:
    """`os` for runs in which nothing happens to the disk: they need not wait for it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        pass


class Disk(QuickDisk):
    """`os`, as a `LocalStorage` uses it, with a memory. Nothing is really synced: what would be kept is worked out."""

    def __init__(self, *kept: Path) -> None:
        """Files that were there before and that nobody syncs are lost, but for those below `kept`."""
        self.changes: list[Change] = []
        self._kept = kept
        self._names: dict[Path, File] = {}
        self._files: dict[int, File] = {}  # by descriptor, as the others
        self._directories: dict[int, Path] = {}
        self._to_sync: dict[int, Path] = {}  # opened to be synced, whoever wrote into it
        self._lock = threading.RLock()  # a shard is synced by a thread

    def open(self, name: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            path = self._path(name, dir_fd)
            is_new = bool(flags & os.O_CREAT) and (bool(flags & os.O_TRUNC) or not path.exists())
            descriptor = os.open(name, flags, mode, dir_fd=dir_fd)
            if is_new:
                self._files[descriptor] = self._names[path] = File()
                self.changes.append(Change("link", path, self._names[path]))
            elif path.is_dir():
                self._directories[descriptor] = path
            else:
                self._files[descriptor] = self._file(path)
                if flags & os.O_ACCMODE == os.O_RDONLY:
                    self._to_sync[descriptor] = path
            return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        with self._lock:
            written = os.write(descriptor, data)
            file = self._files[descriptor]
            self._note(file, len(file.data), bytes(data[:written]))
            return written

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        with self._lock:
            written = os.pwrite(descriptor, data, offset)
            self._note(self._files[descriptor], offset, bytes(data[:written]))
            return written

    def posix_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        with self._lock:
            os.posix_fallocate(descriptor, offset, size)
            file = self._files[descriptor]
            self._note(file, len(file.data), bytes(max(offset + size - len(file.data), 0)))

    def fsync(self, descriptor: int) -> None:
        with self._lock:
            if descriptor in self._directories:
                self.changes.append(Change("sync-directory", self._directories[descriptor]))
                return
            file = self._files[descriptor]
            if descriptor in self._to_sync:  # then it may have been written through a map, or by another program
                for offset, data in _changed(bytes(file.data), self._to_sync[descriptor].read_bytes()):
                    self._note(file, offset, data)
            self.changes.append(Change("sync-file", file=file, writes=file.writes))

    def close(self, descriptor: int) -> None:
        with self._lock:
            for known in (self._files, self._directories, self._to_sync):
                known.pop(descriptor, None)
            os.close(descriptor)

    def link(
        self, source: str | Path, name: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """One more name for the same bytes, which are on the disk if somebody synced them."""
        with self._lock:
            os.link(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            target = self._path(name, dst_dir_fd)
            self._names[target] = self._file(self._path(source, src_dir_fd))
            self.changes.append(Change("link", target, self._names[target]))

    def replace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        with self._lock:
            source, target = self._path(old, src_dir_fd), self._path(new, dst_dir_fd)
            moved = None if source.is_dir() else self._file(source)
            os.replace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            for path in [path for path in self._names if path == source or source in path.parents]:
                self._names[target / path.relative_to(source)] = self._names.pop(path)
            self.changes.append(Change("rename", source, moved, to=target))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        with self._lock:
            os.unlink(name, dir_fd=dir_fd)
            path = self._path(name, dir_fd)
            self._names.pop(path, None)
            self.changes.append(Change("unlink", path))

    def rmdir(self, name: str | Path, *, dir_fd: int | None = None) -> None:
        with self._lock:
            os.rmdir(name, dir_fd=dir_fd)
            self.changes.append(Change("unlink", self._path(name, dir_fd)))

    def mkdir(self, name: str | Path, *, dir_fd: int | None = None) -> None:
        with self._lock:
            os.mkdir(name, dir_fd=dir_fd)
            self.changes.append(Change("mkdir", self._path(name, dir_fd)))

    def _path(self, name: str | Path, dir_fd: int | None) -> Path:
        return Path(name) if dir_fd is None else self._directories[dir_fd] / name

    def _file(self, path: Path) -> File:
        if path not in self._names:  # it was there before
            file = self._names[path] = File()
            self._note(file, 0, path.read_bytes())
            if any(directory in path.parents for directory in self._kept):
                self.changes.append(Change("sync-file", file=file, writes=file.writes))
        return self._names[path]

    def _note(self, file: File, offset: int, data: bytes) -> None:
        file.writes += 1
        file.data[offset : offset + len(data)] = data
        self.changes.append(Change("write", file=file, offset=offset, data=data))


def _changed(old: bytes, new: bytes) -> Iterator[tuple[int, bytes]]:
    """The stretches of a file that are new; what lies between them may have been synced before, and stays so."""
    before, after = np.frombuffer(old.ljust(len(new), b"\0"), np.uint8), np.frombuffer(new, np.uint8)
    places = np.flatnonzero(before[: len(after)] != after)
    if len(new) > len(old):
        places = np.union1d(places, np.arange(len(old), len(new)))
    for stretch in np.split(places, np.flatnonzero(np.diff(places) > _GAP_BYTES) + 1) if len(places) else []:
        yield int(stretch[0]), new[int(stretch[0]) : int(stretch[-1]) + 1]


@contextmanager
def power_loss(
    number: int, changes: list[Change], store: Path, image: Path, *, first: int = 0, of: str = ""
) -> Iterator[None]:
    """Makes `image` of the loss with this number, after `first` or more of the changes. What goes wrong inside says which
    one it was: each loss depends on the seed, its number and what it is one of alone."""
    rng = random.Random(f"{SEED}.{number}.{of}")
    when = rng.randint(first, len(changes))
    try:
        after_power_loss(changes[:when], store, image, rng)
        yield
    except BaseException as error:
        error.add_note(f"TOKPRESS_CRASH_SEED={SEED}, loss {number} after {when} of {len(changes)} changes")
        raise


def in_parts(count: int, most: int) -> list[range]:
    """So many rounds as parameters of a test, in parts that stay far from its time limit on a busy machine."""
    return [range(first, min(first + most, count)) for first in range(0, count, most)]


def after_power_loss(changes: list[Change], store: Path, image: Path, rng: random.Random) -> None:
    """Makes `image`, as the directory `store` may be found after these changes and a loss of power."""
    contents: defaultdict[File, _Content] = defaultdict(_Content)
    names = _Names()
    for change in changes:
        if change.kind == "write" and change.file is not None:
            contents[change.file].unsynced.append((change.offset, change.data))
        elif change.kind == "sync-file" and change.file is not None:
            contents[change.file].sync(change.writes)
        elif change.kind == "sync-directory":
            names.sync(change.path)
        else:
            names.change(change)
    names.lose(rng)
    image.mkdir(parents=True)
    for path, file in sorted(names.kept.items()):
        place = image / path.relative_to(store)
        if place == image or not place.parent.is_dir():  # the directory that it stands in was lost
            continue
        if file is None:
            place.mkdir()
        else:
            place.write_bytes(contents[file].found(rng))


@dataclass
class _Content:
    """The bytes of one file that are on the disk, and the writes that may not be."""

    kept: bytearray = field(default_factory=bytearray)
    writes: int = 0  # that are in `kept`
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)

    def sync(self, writes: int) -> None:
        for offset, data in self.unsynced[: max(writes - self.writes, 0)]:
            self.kept[offset : offset + len(data)] = data
        del self.unsynced[: max(writes - self.writes, 0)]
        self.writes = max(writes, self.writes)

    def found(self, rng: random.Random) -> bytes:
        found = bytearray(self.kept)
        how = rng.choice(["nothing", "part", "zeros", "noise"])
        whole = rng.randint(0, len(self.unsynced)) if how == "part" else len(self.unsynced)
        for number, (offset, written) in enumerate(self.unsynced if how != "nothing" else []):
            data = {"part": written, "zeros": bytes(len(written))}.get(how) or rng.randbytes(len(written))
            if number >= whole:  # of the write that was under way some bytes, and nothing of those after it
                data = data[: rng.randint(0, len(data)) if number == whole else 0]
            if len(found) < offset and data:
                found += bytes(offset - len(found))
            found[offset : offset + len(data)] = data
        return bytes(found)


class _Names:
    """The names that are on the disk, and the changes of each directory that may not be."""

    def __init__(self) -> None:
        self.kept: dict[Path, File | None] = {}  # None: a directory
        self._count = 0
        self._pending: dict[Path, list[tuple[int, Change]]] = {}  # in order, with the number of each

    def change(self, change: Change) -> None:
        self._count += 1
        self._pending.setdefault((change.to or change.path).parent, []).append((self._count, change))

    def sync(self, directory: Path) -> None:
        self._keep(directory, len(self._pending.get(directory, [])))

    def lose(self, rng: random.Random) -> None:
        for directory, waiting in list(self._pending.items()):
            self._keep(directory, rng.randint(0, len(waiting)))

    def _keep(self, directory: Path, count: int) -> None:
        waiting = self._pending.get(directory, [])
        kept, self._pending[directory] = waiting[:count], waiting[count:]
        for number, change in kept:
            self._apply(number, change)

    def _apply(self, number: int, change: Change) -> None:
        if change.kind == "unlink":
            self.kept.pop(change.path, None)
        elif change.to is None:
            self.kept[change.path] = change.file
        elif change.file is not None:
            self.kept.pop(change.path, None)
            self.kept[change.to] = change.file
        else:
            self._make_way(number, change.to)
            self.kept.pop(change.path, None)
            self.kept[change.to] = None
            for path in [path for path in self.kept if change.path in path.parents]:  # what is in it moves with it
                self.kept[change.to / path.relative_to(change.path)] = self.kept.pop(path)

    def _make_way(self, number: int, place: Path) -> None:
        """No directory can take the name of one with something in it: what was there was moved away first, on any disk."""
        for waiting in self._pending.values():
            for before, change in list(waiting):
                if before < number and change.path == place and change.to is not None:
                    waiting.remove((before, change))
                    self._apply(before, change)
