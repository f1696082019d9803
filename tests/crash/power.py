"""A disk that loses, when the power fails, whatever it was not told to sync.

`Disk` stands in for `os` in `store/durable.py` and writes down every change in the order in which it happened.
`after_power_loss` makes the directory that a machine might find when it comes back after any of them: of each file what was
synced, and of the rest nothing, a part, or other bytes; of each directory what was synced, and of the changes after that
the first few, as a journal would keep them.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class File:
    """What was written into one file, whatever its name is by now."""

    data: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Change:
    """One of: write (so long is the file now), sync-file (so long was it), link, rename, unlink, mkdir, sync-directory."""

    kind: str
    path: Path
    file: File | None = None
    length: int = 0
    to: Path | None = None


class Disk:
    """`os`, as `store/durable.py` uses it, with a memory."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._files: dict[int, File] = {}
        self._names: dict[Path, File] = {}
        self._directories: dict[int, Path] = {}
        self._lock = threading.Lock()  # a shard is synced by a thread

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)  # the constants

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        with self._lock:
            descriptor = os.open(path, flags, mode)
            if flags & os.O_CREAT:
                self._files[descriptor] = self._names[path] = File()
                self.changes.append(Change("link", path, self._files[descriptor]))
            else:
                self._directories[descriptor] = path
            return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        with self._lock:
            written = os.write(descriptor, data)
            file = self._files[descriptor]
            file.data += data[:written]
            self.changes.append(Change("write", Path(), file, len(file.data)))
            return written

    def fsync(self, descriptor: int) -> None:
        file = self._files.get(descriptor)
        length = len(file.data) if file else 0  # what is written meanwhile is not promised
        os.fsync(descriptor)
        with self._lock:
            if file:
                self.changes.append(Change("sync-file", Path(), file, length))
            else:
                self.changes.append(Change("sync-directory", self._directories[descriptor]))

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._files.pop(descriptor, None)
            self._directories.pop(descriptor, None)
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """One more name for a file that was on the disk before."""
        with self._lock:
            os.link(source, target)
            file = self._names[target] = File(bytearray(source.read_bytes()))
            self.changes.append(Change("link", target, file))
            self.changes += [Change(kind, Path(), file, len(file.data)) for kind in ("write", "sync-file")]

    def replace(self, source: Path, target: Path) -> None:
        with self._lock:
            source.replace(target)
            moved = self._names.pop(source, None)  # None: a directory
            if moved is not None:
                self._names[target] = moved
            self.changes.append(Change("rename", source, moved, to=target))

    def unlink(self, path: Path) -> None:
        with self._lock:
            path.unlink()
            self._names.pop(path, None)
            self.changes.append(Change("unlink", path))

    def rmdir(self, path: Path) -> None:
        with self._lock:
            path.rmdir()
            self.changes.append(Change("unlink", path))

    def mkdir(self, path: Path) -> None:
        with self._lock:
            path.mkdir()
            self.changes.append(Change("mkdir", path))


def after_power_loss(changes: list[Change], store: Path, image: Path, rng: random.Random) -> None:
    """Makes `image`, as the directory `store` may be found after these changes and a loss of power."""
    synced: dict[int, int] = {}
    written: dict[int, int] = {}
    entries: dict[Path, File | None] = {}  # None: a directory
    pending: dict[Path, list[Change]] = {}
    for change in changes:
        if change.kind == "write":
            written[id(change.file)] = change.length
        elif change.kind == "sync-file":
            synced[id(change.file)] = max(synced.get(id(change.file), 0), change.length)
        elif change.kind == "sync-directory":
            _apply(entries, pending.pop(change.path, []))
        else:
            pending.setdefault(change.path.parent, []).append(change)
    for waiting in pending.values():
        _apply(entries, waiting[: rng.randint(0, len(waiting))])
    image.mkdir(parents=True)
    for path, file in sorted(entries.items()):
        place = image / path.relative_to(store)
        if file is None:
            place.mkdir(parents=True, exist_ok=True)
        elif place.parent.is_dir():  # else the directory itself was lost
            place.write_bytes(_found(file, synced.get(id(file), 0), written.get(id(file), 0), rng))


def _apply(entries: dict[Path, File | None], changes: list[Change]) -> None:
    for change in changes:
        if change.kind == "rename" and change.to is not None:
            inside = [path for path in entries if change.path in path.parents] if change.file is None else []
            for path in inside:  # what is in a directory moves with it
                entries[change.to / path.relative_to(change.path)] = entries.pop(path)
            entries.pop(change.path, None)
            entries[change.to] = change.file
        elif change.kind == "unlink":
            entries.pop(change.path, None)
        else:
            entries[change.path] = change.file


def _found(file: File, synced: int, written: int, rng: random.Random) -> bytes:
    lost = written - synced
    kept = bytes(file.data[:synced])
    match rng.choice(["nothing", "part", "zeros", "noise"]):
        case "nothing":
            return kept
        case "part":
            return bytes(file.data[: synced + rng.randint(0, lost)])
        case "zeros":
            return kept + bytes(lost)
    return kept + rng.randbytes(lost)
