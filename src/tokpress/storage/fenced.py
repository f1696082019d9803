"""A storage that can be closed to those who write through it.

In: objects. Out: the same objects, each of which was whole in a directory of the run first, and then moved to its place
in one step. Once that directory is gone, nothing can be written through it any more, by anybody: a process that was
frozen and goes on after its run was ended or replaced finds no place to write to, whatever it was about to do.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokpress.storage.base import Stat, Storage, Upload, parent_of
from tokpress.storage.local import LocalStorage

if TYPE_CHECKING:
    import pyarrow as pa


class FencedStorage(Storage):
    """`directory` is under the root, is made by whoever begins the run, and never again."""

    def __init__(self, storage: LocalStorage, directory: str) -> None:
        self.url = storage.url
        self._storage = storage
        self._directory = directory

    def location(self, key: str) -> str:
        return self._storage.location(key)

    def below(self, prefix: str) -> Storage:
        return self._storage.below(prefix)

    def present(self) -> bool:
        return self._storage.present()

    def stat(self, key: str) -> Stat | None:
        return self._storage.stat(key)

    def list(self, prefix: str = "") -> list[str]:
        return self._storage.list(prefix)

    def children(self, prefix: str = "") -> Sequence[str]:
        return self._storage.children(prefix)

    def open(self, key: str) -> pa.NativeFile:
        return self._storage.open(key)

    def read(self, key: str) -> bytes:
        return self._storage.read(key)

    def create(self, key: str) -> FencedUpload:
        return FencedUpload(self._storage, key, f"{self._directory}/{key.replace('/', '.')}.{secrets.token_hex(8)}")

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        upload = self.create(key)
        upload.if_absent = if_absent
        with upload:
            upload.write(data)
        self.barrier(parent_of(key))

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def delete_prefix(self, prefix: str) -> None:
        self._storage.delete_prefix(prefix)

    def local(self, key: str) -> Path:
        return self._storage.local(key)

    def prepare(self, *prefixes: str) -> None:
        self._storage.prepare(*prefixes)

    def barrier(self, *prefixes: str) -> None:
        self._storage.barrier(*prefixes)

    def delete_abandoned(self, *prefixes: str) -> None:
        self._storage.delete_abandoned(*prefixes)


class FencedUpload(Upload):
    """Written in the run's directory, and moved from there."""

    def __init__(self, storage: LocalStorage, key: str, staged: str) -> None:
        super().__init__(key)
        self.if_absent = False
        self._storage = storage
        self._staged = staged
        self._upload = storage.create(staged)

    def _write(self, view: memoryview) -> None:
        self._upload._write(view)  # counted and hashed here

    def commit(self) -> None:
        self._upload.commit()
        (self._storage.rename_new if self.if_absent else self._storage.rename)(self._staged, self.key)

    def abort(self) -> None:
        self._upload.abort()
        self._storage.delete(self._staged)
