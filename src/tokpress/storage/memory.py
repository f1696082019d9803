"""Objects in a dict of this process: for tests, and the plainest way to keep the contract."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tokpress.storage.base import Stat, Storage, Upload, checksum

if TYPE_CHECKING:
    import pyarrow as pa

_PUTTING = threading.Lock()  # of all storages: those below one prefix share their objects


class MemoryStorage(Storage):
    def __init__(self, objects: dict[str, bytes] | None = None, prefix: str = "") -> None:
        self.url = f"memory://{prefix}"
        self._objects = {} if objects is None else objects
        self._prefix = f"{prefix}/" if prefix else ""

    def _key(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} is no key: it would lead out of {self.url}")
        return self._prefix + key

    def _get(self, key: str) -> bytes:
        try:
            return self._objects[self._key(key)]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.location(key)) from None

    def below(self, prefix: str) -> MemoryStorage:
        return MemoryStorage(self._objects, self._key(prefix))

    def present(self) -> bool:
        return bool(self.list())

    def stat(self, key: str) -> Stat | None:
        data = self._objects.get(self._key(key))
        return None if data is None else Stat(len(data), checksum(data))

    def list(self, prefix: str = "") -> list[str]:
        inside = self._key(f"{prefix}/" if prefix else "")
        return sorted(key.removeprefix(self._prefix) for key in self._objects if key.startswith(inside))

    def children(self, prefix: str = "") -> Sequence[str]:
        inside = f"{prefix}/" if prefix else ""
        return sorted({key.removeprefix(inside).partition("/")[0] for key in self.list(prefix)})

    def open(self, key: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self._get(key))

    def create(self, key: str) -> Upload:
        return _MemoryUpload(self._objects, self._key(key))

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        with _PUTTING:
            if if_absent and self._key(key) in self._objects:
                raise FileExistsError(17, "there is such an object", self.location(key))
            self._objects[self._key(key)] = data

    def delete(self, key: str) -> None:
        self._objects.pop(self._key(key), None)

    def delete_prefix(self, prefix: str) -> None:
        for key in self.list(prefix):
            self.delete(key)

    def local(self, key: str) -> Path:
        path = self._copies / checksum(self._key(key).encode())
        path.write_bytes(self._get(key))
        return path

    @cached_property
    def _copies(self) -> Path:
        directory = tempfile.mkdtemp(prefix="tokpress-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return Path(directory)


class _MemoryUpload(Upload):
    def __init__(self, objects: dict[str, bytes], key: str) -> None:
        super().__init__(key)
        self._objects = objects
        self._data = bytearray()

    def _write(self, view: memoryview) -> None:
        self._data += view

    def commit(self) -> None:
        self.closed = True
        self._objects[self.key] = bytes(self._data)

    def abort(self) -> None:
        self.closed = True
