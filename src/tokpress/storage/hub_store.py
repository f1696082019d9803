"""A store on the Hugging Face Hub, to read: `hf://datasets/ORG/NAME[@REVISION][/PREFIX]`.

In: keys. Out: the files of a dataset below a prefix, at the commit that the revision was when they were first asked for: all
that is read belongs together. Files are listed once. To put a store there: `storage.hub_upload`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tokpress.errors import UsageError
from tokpress.storage.base import Stat, Storage, Upload
from tokpress.storage.copies import Copies, cache_directory, cache_limit
from tokpress.storage.hub import HUB, HubDataset, parse_address, resolve
from tokpress.storage.ranged import RANGE_BYTES, RangedFile

if TYPE_CHECKING:
    import pyarrow as pa


class HubStorage(Storage):
    def __init__(self, url: str) -> None:
        self.address = parse_address(url)
        self.url = url.rstrip("/")

    def __reduce__(self) -> tuple[object, ...]:
        """Another process reads the same commit."""
        return HubStorage, (self._pinned,)

    @property
    def _pinned(self) -> str:
        prefix = self.address.path
        return self._dataset.url + (f"/{prefix}" if prefix else "")

    @cached_property
    def _dataset(self) -> HubDataset:
        return resolve(self.address.repo, self.address.revision).dataset

    @cached_property
    def _files(self) -> dict[str, Stat]:
        prefix = self.address.path
        beginning = f"{prefix}/" if prefix else ""
        return {key.removeprefix(beginning): stat for key, stat in self._dataset.list_stats(prefix)}

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} is no key: it would lead out of {self.url}")
        return "/".join(part for part in (self.address.path, key) if part)

    def below(self, prefix: str) -> HubStorage:
        self._path(prefix)
        return HubStorage(f"{self._pinned}/{prefix}")

    def present(self) -> bool:
        return bool(self._files)

    def stat(self, key: str) -> Stat | None:
        return self._files.get(key)

    def list(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self._files if not prefix or key.startswith(f"{prefix}/"))

    def children(self, prefix: str = "") -> Sequence[str]:
        beginning = f"{prefix}/" if prefix else ""
        return sorted({key.removeprefix(beginning).split("/")[0] for key in self.list(prefix)})

    def open(self, key: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(self._file(key), "r")

    def _file(self, key: str) -> RangedFile:
        return RangedFile(partial(self.read_range, key), self._must_exist(key).size)

    def _must_exist(self, key: str) -> Stat:
        stat = self.stat(key)
        if stat is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self.location(key))
        return stat

    def read_range(self, key: str, start: int, stop: int, version: str | None = None) -> Any:
        return self._dataset.read_range(self._path(key), start, stop, version)

    def read(self, key: str) -> bytes:
        return bytes(self.read_range(key, 0, self._must_exist(key).size))

    def local(self, key: str) -> Path:
        stat = self._must_exist(key)
        address = self._dataset.location(self._path(key))
        return self._copies.get(address, stat.version, stat.size, partial(self._parts, key))

    def _parts(self, key: str) -> Iterator[bytes]:
        with self._file(key) as file:
            while part := file.read(RANGE_BYTES):
                yield part

    @cached_property
    def _copies(self) -> Copies:
        return Copies(cache_directory() / "objects", cache_limit())

    def create(self, key: str) -> Upload:  # noqa: ARG002
        self._refuse()

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:  # noqa: ARG002
        self._refuse()

    def delete(self, key: str) -> None:  # noqa: ARG002
        self._refuse()

    def delete_prefix(self, prefix: str) -> None:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"{self.url} is on the Hub, where nothing is written file by file. Write to a disk or a bucket (tokpress copy), "
            f"and then: tokpress publish STORE {HUB}datasets/{self.address.repo}"
        )


def is_hub(place: str) -> bool:
    return place.startswith(HUB)
