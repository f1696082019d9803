"""Inputs that are not files of this machine: objects of buckets, files of a dataset on the Hub, https.

In: addresses of objects, prefixes and globs. Out: what they stand for, each pinned to the version that it has now; and such
an object as a file, which is that version or an error. They are listed once, where a run is planned; whoever reads asks for
the pinned version by itself.
"""

from __future__ import annotations

import errno
import glob
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import takewhile
from typing import Any, Protocol

import pyarrow as pa

from tokpress.errors import InputError, UsageError
from tokpress.records import Input
from tokpress.storage.base import Stat
from tokpress.storage.hub import HUB, HubDataset, parse_address, resolve
from tokpress.storage.object_store import ObjectStorage, is_remote
from tokpress.storage.ranged import RangedFile
from tokpress.storage.requests import ObjectChanged


class Readable(Protocol):
    """What a storage or a dataset of the Hub offers to a reader."""

    @property
    def url(self) -> str: ...
    def list_stats(self, prefix: str = "") -> Sequence[tuple[str, Stat]]: ...
    def stat(self, key: str) -> Stat | None: ...
    def read_range(self, key: str, start: int, stop: int, version: str | None = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Found:
    """An object, its name below the argument that found it, and whether it was named, not met in a directory."""

    path: str
    stat: Stat
    name: str
    named: bool


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files that were found already, as an argument among others."""

    name: str  # what a user typed for them
    files: tuple[Found, ...]


def is_remote_input(path: str) -> bool:
    return path.startswith(HUB) or is_remote(path)


def expand(argument: str) -> list[Found]:
    """The objects that an address, a prefix or a glob stands for, sorted; hidden ones are left out."""
    forget_connections()
    if "?" in argument.partition("://")[2] and not argument.startswith(HUB) and argument.startswith("http"):
        raise UsageError(
            f"{argument.partition('?')[0]} is followed by a query. An address stands in the plan and in messages, and a "
            "signature in it would, too: use one without, or download the file."
        )
    store, pattern = _opened(argument)
    if argument.startswith(("http://", "https://")):
        if glob.has_magic(pattern) or argument.endswith("/"):
            raise UsageError(f"{argument} cannot be listed over https. Name its files one by one.")
        found = _one(store, pattern)
    else:
        found = found_in(store, pattern)
    if not found and not glob.has_magic(pattern):
        raise UsageError(f"no such object, and nothing under that prefix: {argument}. Check the address.")
    return found


def forget_connections() -> None:
    """Those that follow are made with what stands in the environment then."""
    for connections in (_bucket, _dataset):
        connections.cache_clear()


def found_in(store: Readable, pattern: str) -> list[Found]:
    """What a glob matches; what stands below a prefix; or the object of that name."""
    if glob.has_magic(pattern):
        return list(_matching(store, pattern))
    return [item for item in _below(store, pattern) if not _is_hidden(item.name)] or _one(store, pattern)


def _one(store: Readable, key: str) -> list[Found]:
    stat = _asked(f"{store.url}/{key}", lambda: store.stat(key)) if key else None
    return [Found(f"{store.url}/{key}", stat, key.rpartition("/")[2], named=True)] if stat else []


def _opened(argument: str) -> tuple[Readable, str]:
    """What an address is in, and the key or pattern there."""
    if argument.startswith(HUB):
        address = parse_address(argument)
        return resolve(address.repo, address.revision).dataset, address.path
    scheme, _, rest = argument.partition("://")
    bucket, _, key = rest.partition("/")
    return _bucket(f"{scheme}://{bucket}"), "/".join(part for part in key.split("/") if part)


@cache
def _bucket(url: str) -> ObjectStorage:
    return ObjectStorage(url)  # one, with its connections, for all objects


@cache
def _dataset(repo: str, sha: str) -> HubDataset:
    return HubDataset(repo, sha)


def _below(store: Readable, prefix: str) -> Iterator[Found]:
    for key, stat in _asked(f"{store.url}/{prefix}", lambda: store.list_stats(prefix)):
        if key != prefix and not key.endswith("/"):
            name = key.removeprefix(f"{prefix}/") if prefix else key
            yield Found(f"{store.url}/{key}", stat, name, named=False)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _matching(store: Readable, pattern: str) -> Iterator[Found]:
    parts = pattern.split("/")
    fixed = "/".join(takewhile(lambda part: not glob.has_magic(part), parts))
    for item in _below(store, fixed):
        names = item.name.split("/")
        wanted = parts[len(fixed.split("/")) if fixed else 0 :]
        if _matches(names, wanted):
            yield Found(item.path, item.stat, item.name, named=True)
        elif any(_matches(names[:i], wanted) and not _is_hidden("/".join(names[i:])) for i in range(1, len(names))):
            yield item  # of a directory that matches


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """As `glob` does: `**` is any directories, no wildcard takes a dot at the beginning."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        rest = pattern[1:]
        skipped = (i for i in range(len(names) + 1) if not _is_hidden("/".join(names[:i])))
        return any(_matches(names[i:], rest) for i in skipped) if rest else not _is_hidden("/".join(names))
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _asked(place: str, call: Any) -> Any:
    try:
        return call()
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror}.") from None


class RemoteFile(io.RawIOBase):
    """A pinned object. Read from one end to the other, it is some ranges ahead; where a reader says which regions it will
    read, each of them is followed by itself, and nothing beyond it is fetched."""

    def __init__(self, source: Input) -> None:
        super().__init__()
        self._store, self._key = _place(source.path)
        self._version, self._size = source.version, source.size
        self._position = 0
        self.streams = True  # outside of regions: ahead of whoever reads; else exactly what is asked for
        self._whole = RangedFile(self._get, source.size)
        self._regions: list[tuple[int, int, RangedFile]] = []

    def _get(self, start: int, stop: int) -> Any:
        return self._store.read_range(self._key, start, stop, self._version)

    def focus(self, regions: Sequence[tuple[int, int]]) -> None:
        """Will read these regions, the largest one mostly."""
        self._close_regions()
        largest = max(regions, key=lambda region: region[1] - region[0], default=None)
        for region in regions:
            ahead = {} if region == largest else {"ahead": 0}
            self._regions.append((*region, RangedFile(self._get, region[1], **ahead)))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        size = self._size if size is None or size < 0 else size
        data = b""
        while part := self._part(size - len(data)):
            self._position += len(part)
            data = data + part if data else part
        return data

    def _part(self, most: int) -> bytes:
        here = self._position
        most = min(most, self._size - here)
        inside = next((file for start, stop, file in self._regions if start <= here < stop), None)
        if inside is None and not self.streams:
            return bytes(self._get(here, here + most)) if most > 0 else b""
        file = inside or self._whole
        file.seek(here)
        return file.read(most)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _close_regions(self) -> None:
        for *_, file in self._regions:
            file.close()
        self._regions.clear()

    def close(self) -> None:
        self._close_regions()
        self._whole.close()
        super().close()


class RemoteInput(pa.PythonFile):  # type: ignore[misc]
    """The same for Arrow."""

    def __init__(self, file: RemoteFile, mode: str) -> None:  # noqa: ARG002 - Arrow has taken both by then
        self.file = file


def _place(path: str) -> tuple[Readable, str]:
    """Where a pinned object is read from. Nothing is asked: an address of the Hub holds the commit."""
    if path.startswith(HUB):
        address = parse_address(path)
        return _dataset(address.repo, address.revision or ""), address.path
    return _opened(path)


def check_unchanged(source: Input) -> None:
    """Where reads cannot name the version themselves: raises OSError if the object is another one."""
    if source.path.startswith(HUB) or source.version.startswith('"'):
        return
    store, key = _place(source.path)
    stat = store.stat(key)
    if stat is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", source.path)
    if (stat.size, stat.version) != (source.size, source.version):
        raise ObjectChanged(116, "the object was changed since it was first looked at", source.path)
