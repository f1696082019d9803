"""One shard's files, mapped.

In: a receipt. Out: its ids, document ends, positions and, where there is one, its mask, as arrays. A file's size is compared
when a shard is opened, and again now and then while it is used; who touches what is gone between two looks gets an error as
well (`storage.lost_pages`). Ends are bounds in memory to every reader, format and packing, so they are checked here, once,
before anybody gets them.
"""

from __future__ import annotations

import errno
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Ids, Int64s
from tokpress.errors import StoreError
from tokpress.machine import map_limit
from tokpress.records import MASK, Receipt
from tokpress.storage.base import Storage
from tokpress.storage.lost_pages import check, lost
from tokpress.storage.mapped import current_size, map_bytes
from tokpress.store.manifest import verify_hint

_INT64 = np.dtype("<i8")
_UINT8 = np.dtype("u1")
LOOK_SECONDS = 1.0  # between two looks at the sizes of files that are in use: a look takes microseconds, for each shard


class Shard:
    """The sizes of all its files are compared when it is made; each is mapped when it is asked for."""

    def __init__(self, storage: Storage, receipt: Receipt, dtype: np.dtype[Any]) -> None:
        self.receipt = receipt
        self._storage = storage
        self._looked = monotonic()
        self._mapped: dict[str, npt.NDArray[Any]] = {}  # by path
        self._items = {"bin": (dtype, receipt.tokens), "ends": (_INT64, receipt.docs), "pos": (_INT64, receipt.docs)}
        if MASK in receipt.files:
            self._items[MASK] = (_UINT8, receipt.tokens)
        for extension, (kind, count) in self._items.items():
            _check_size(storage, receipt.path(extension), kind.itemsize * count)

    @cached_property
    def ids(self) -> Ids:
        mapped: Ids = self._map("bin")
        return mapped

    @cached_property
    def stored_ends(self) -> Int64s:
        """Unchecked."""
        mapped: Int64s = self._map("ends")
        return mapped

    @cached_property
    def positions(self) -> Int64s:
        mapped: Int64s = self._map("pos")
        return mapped

    @cached_property
    def mask(self) -> npt.NDArray[np.uint8] | None:
        """1 = loss here; only supervised data has one."""
        return self._map(MASK) if MASK in self._items else None

    def _map(self, extension: str) -> Any:
        key = self.receipt.path(extension)
        array = map_array(self._storage, key, *self._items[extension], verify_hint(self._storage))
        if len(array) and self._storage.has_lock:  # a copy of a remote file may go, and stays mapped as it is
            self._mapped[str(self._storage.local(key))] = array
        return array

    @cached_property
    def ends(self) -> Int64s:
        """Where each document ends. They rise, from 0 or more to the number of tokens."""
        ends, tokens = self.stored_ends, self.receipt.tokens
        if (len(ends) and (ends[0] < 0 or (ends[1:] < ends[:-1]).any())) or (ends[-1] if len(ends) else 0) != tokens:
            place = self._storage.location(self.receipt.path("ends"))
            raise StoreError(
                f"{place} is damaged: its document ends do not rise to {tokens:,}. {verify_hint(self._storage)}"
            )
        return ends

    def look_again(self) -> None:
        """Raises StoreError if a file has become shorter since it was mapped. Asked before each use, looked now and then."""
        if lost:
            check(*self._mapped.values())
        now = monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for path, array in list(self._mapped.items()):
            if (left := current_size(path)) < array.nbytes:
                raise StoreError(
                    f"{path} has become shorter while it is read: {left:,} bytes instead of {array.nbytes:,}. "
                    f"{verify_hint(self._storage)}"
                )


def _check_size(storage: Storage, key: str, expected: int) -> None:
    found = storage.stat(key)
    if found is None:
        raise StoreError(f"{storage.location(key)} is missing. {verify_hint(storage)}")
    if found.size != expected:
        raise _wrong_size(storage, key, found.size, expected, verify_hint(storage))


def _wrong_size(storage: Storage, key: str, size: int, expected: int, advice: str) -> StoreError:
    return StoreError(f"{storage.location(key)} has {size:,} bytes instead of {expected:,}. {advice}")


def map_array(storage: Storage, key: str, dtype: np.dtype[Any], count: int, advice: str) -> Any:
    """An object of so many numbers, mapped; the size is checked, and an error ends with the advice."""
    place = storage.location(key)
    if not storage.exists(key):
        raise StoreError(f"{place} is missing. {advice}")
    try:
        data = map_bytes(storage.local(key), advice=advice)
    except OSError as error:
        if error.errno == errno.ENOMEM and (limit := map_limit()) is not None:
            raise StoreError(
                f"{place} cannot be mapped: this process has as many maps as the system allows it, {limit:,}, and a store "
                "takes a few for each shard. Allow more: sysctl -w vm.max_map_count=1048576; or build larger shards: "
                "--shard-size"
            ) from error
        raise StoreError(f"{place} cannot be read: {error}. {advice}") from error
    expected = count * dtype.itemsize
    if len(data) != expected:
        raise _wrong_size(storage, key, len(data), expected, advice)
    return data.view(dtype)
