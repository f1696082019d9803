"""One shard's files, mapped.

In: a receipt. Out: its ids, document ends, positions and, where there is one, its mask, as arrays. A file's size is compared
when it is mapped, and again now and then while it is used: memory behind the end of a file that has become shorter ends
the process without a word. Ends are bounds in memory to every reader, format and packing, so they are checked here, once,
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
from tokpress.records import Receipt
from tokpress.storage.base import Storage
from tokpress.storage.mapped import current_size, map_bytes
from tokpress.store.manifest import verify_hint

_INT64 = np.dtype("<i8")
_UINT8 = np.dtype("u1")
LOOK_SECONDS = 1.0  # between two looks at the sizes of files that are in use: a look takes microseconds, for each shard


class Shard:
    def __init__(self, storage: Storage, receipt: Receipt, dtype: np.dtype[Any]) -> None:
        advice = verify_hint(storage)
        self.receipt = receipt
        self._storage = storage
        self._looked = monotonic()
        self.ids: Ids = map_array(storage, receipt.path("bin"), dtype, receipt.tokens, advice)
        self.stored_ends: Int64s = map_array(storage, receipt.path("ends"), _INT64, receipt.docs, advice)  # unchecked
        self.positions: Int64s = map_array(storage, receipt.path("pos"), _INT64, receipt.docs, advice)
        self.mask: npt.NDArray[np.uint8] | None = None  # 1 = loss here; only supervised data has one
        if "mask" in receipt.files:
            self.mask = map_array(storage, receipt.path("mask"), _UINT8, receipt.tokens, advice)
        arrays = {"bin": self.ids, "ends": self.stored_ends, "pos": self.positions, "mask": self.mask}
        self._mapped = {
            str(storage.local(receipt.path(extension))): array.nbytes
            for extension, array in arrays.items()
            if array is not None and len(array)
        }

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
        now = monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for path, size in self._mapped.items():
            if (left := current_size(path)) < size:
                raise StoreError(
                    f"{path} has become shorter while it is read: {left:,} bytes instead of {size:,}. "
                    f"{verify_hint(self._storage)}"
                )


def map_array(storage: Storage, key: str, dtype: np.dtype[Any], count: int, advice: str) -> Any:
    """An object of so many numbers, mapped; the size is checked, and an error ends with the advice."""
    place = storage.location(key)
    if not storage.exists(key):
        raise StoreError(f"{place} is missing. {advice}")
    try:
        data = map_bytes(storage.local(key))
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
        raise StoreError(f"{place} has {len(data):,} bytes instead of {expected:,}. {advice}")
    return data.view(dtype)
