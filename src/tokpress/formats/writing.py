"""The files of one part.

In: arrays, or files of the store. Out: whole files in the directory of an export, and the part's receipt. What is raw ids
in the store and in the format alike is linked: one more name for the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tokpress.errors import StoreError
from tokpress.formats.base import Advance, Export, Written
from tokpress.records import Receipt
from tokpress.storage.base import Upload, parent_of
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import verify_hint

BLOCK_BYTES = 8 * 1024**2  # worked on at a time, so that memory does not grow with a file


class PartWriter:
    """Writes the files of a part, one after the other; `receipt` when all of them are there."""

    def __init__(self, export: Export, storage: LocalStorage, advance: Advance) -> None:
        self._export = export
        self._storage = storage
        self._advance = advance
        self._files: dict[str, int] = {}
        self._linked = 0

    def link(self, receipt: Receipt, extension: str, name: str) -> None:
        """A file of a shard under another name; a copy where links cannot be, or are not wanted."""
        store, key, entry = self._export.store.storage, receipt.path(extension), receipt.files[extension]
        checksum = self._storage.link(store.local(key), name, copy=self._export.options.copy)
        self._linked += entry.bytes if checksum is None else 0
        if self._storage.size(name) != entry.bytes or checksum not in (None, entry.xxh3):
            raise StoreError(f"{store.location(key)} is damaged. {verify_hint(store)}")
        self._files[name] = entry.bytes
        self._advance(entry.bytes)

    @contextmanager
    def open(self, name: str) -> Iterator[Upload]:
        """A file to be written from its start to its end; it exists when the block is left without an error."""
        with self._storage.create(name) as file:
            yield file
        self._files[name] = file.bytes

    def write(self, name: str, blocks: Iterable[Any]) -> None:
        """A file from arrays that are little-endian."""
        with self.open(name) as file:
            for block in self._told(blocks):
                file.write(block)

    def write_at(self, name: str, size: int, offset: int, blocks: Iterable[Any]) -> None:
        """A stretch of a file of `size` bytes that other parts write to, too."""
        self._storage.reserve(name, size)
        self._files[name] = size
        self._storage.write_at(name, offset, self._told(blocks))

    def mapped(self, name: str, size: int, written: int) -> None:
        """So many bytes of a shared file were written through a map, and synced."""
        self._files[name] = size
        self._advance(written)

    def _told(self, blocks: Iterable[Any]) -> Iterable[Any]:
        for block in blocks:
            yield block
            self._advance(memoryview(block).nbytes)

    def receipt(self, **note: Any) -> Written:
        """Everything is on the disk when this returns."""
        self._storage.barrier(*{parent_of(name) for name in self._files})
        return Written(files=self._files, linked=self._linked, note=note)
