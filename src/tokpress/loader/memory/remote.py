"""The ids of a store in a bucket, through a cache of pages on this machine's disk.

In: ranges of tokens. Out: arrays that can be read while the ranges are held. Sizes come from the manifest; the objects are
the ones that were there when the dataset was opened, and one that was replaced since is an error. The cache is keyed by the
store's fingerprint, so that all processes and later runs share it, whatever the store's address is.
"""

from __future__ import annotations

import math
import os
import warnings
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Ids, Int64s
from tokpress.errors import StoreError, UsageError
from tokpress.loader.memory.ranges import Ranges
from tokpress.records import MASK
from tokpress.storage.copies import cache_directory, cache_limit
from tokpress.storage.hub_store import HubStorage
from tokpress.storage.object_store import ObjectStorage
from tokpress.storage.pages import PAGE_BYTES, PageCache
from tokpress.store.manifest import verify_hint
from tokpress.store.reader import Store


def open_pages(
    store: Store, verify: str, cache_dir: str | os.PathLike[str] | None, cache_bytes: int | None
) -> StorePages | None:
    """None: the store lies on this machine."""
    if not isinstance(store.storage, ObjectStorage | HubStorage):
        if cache_dir is not None or cache_bytes is not None:
            raise UsageError(
                f"cache_dir and cache_bytes are for stores in a bucket; {store.url} is read where it is. Leave them out."
            )
        return None
    if verify != "size":
        raise UsageError(
            f"verify={verify!r} reads every byte of {store.url} before the first batch. Leave it out: pages are compared as "
            f"they are used; or look at the whole store once: tokpress verify {store.url}"
        )
    limit = cache_limit() if cache_bytes is None else cache_bytes
    return StorePages(store, store.storage, Path(cache_dir) if cache_dir is not None else cache_directory(), limit)


class StorePages:
    """Of one split."""

    def __init__(self, store: Store, storage: ObjectStorage | HubStorage, directory: Path, most_bytes: int) -> None:
        self._storage = storage
        self._dtype = store.dtype
        self.most_bytes = most_bytes
        self._directory = directory / "pages" / f"{store.fingerprint[:32]}-{store.split_name}"
        receipts = [store.shard_receipt(index) for index in range(len(store.shard_token_ends))]
        self._masks = any(MASK in receipt.files for receipt in receipts)
        extensions = ("bin", MASK) if self._masks else ("bin",)
        self._keys = [receipt.path(extension) for receipt in receipts for extension in extensions]
        sizes = [
            receipt.files[extension].bytes if extension in receipt.files else 0
            for receipt in receipts
            for extension in extensions
        ]
        self._sizes = sizes
        self._per_shard = len(extensions)
        self.total_bytes = sum(sizes)
        _ = self._cache  # what is wrong with it is said now

    def __getstate__(self) -> dict[str, Any]:
        """Maps stay here: the other process opens its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_cache", "_versions")}

    @cached_property
    def _cache(self) -> PageCache:
        return PageCache(self._directory, self._sizes, self._get, self.most_bytes)

    @cached_property
    def _versions(self) -> dict[int, str]:
        return {}

    @property
    def fetched_bytes(self) -> int:
        """By this process, since it opened the dataset."""
        return self._cache.fetched_bytes

    def _get(self, index: int, start: int, stop: int) -> Any:
        key = self._keys[index]
        if index not in self._versions:
            found = self._storage.stat(key)
            if found is None or found.size != self._sizes[index]:
                place, size = self._storage.location(key), "no" if found is None else f"{found.size:,}"
                raise StoreError(
                    f"{place} has {size} bytes instead of {self._sizes[index]:,}. {verify_hint(self._storage)}"
                )
            self._versions[index] = found.version
        return self._storage.read_range(key, start, stop, self._versions[index])

    def arrays(self, shard: int) -> tuple[Ids, npt.NDArray[np.uint8] | None]:
        first = shard * self._per_shard
        mask = self._cache.array(first + 1) if self._masks and self._sizes[first + 1] else None
        return self._cache.array(first).view(self._dtype), mask

    def holding(self, ranges: Ranges) -> AbstractContextManager[None]:
        return self._cache.holding(self._pages(ranges))

    def fill(self, ranges: Ranges) -> None:
        self._cache.fill(self._pages(ranges))

    def _pages(self, ranges: Ranges) -> Int64s:
        objects, stops = ranges.shards * self._per_shard, ranges.starts + ranges.lengths
        width = self._dtype.itemsize
        pages = self._cache.pages_of(objects, ranges.starts * width, stops * width)
        if not self._masks:
            return pages
        masked = np.asarray(self._sizes)[objects + 1] > 0
        of_masks = self._cache.pages_of(objects[masked] + 1, ranges.starts[masked], stops[masked])
        return np.concatenate((pages, of_masks)) if len(of_masks) else pages

    def warn_if_scattered(self, url: str, row_bytes: int, rows: int) -> None:
        """What rows from all over will fetch, made so many together, if the cache does not hold the store."""
        if self.most_bytes >= self.total_bytes:
            return
        pages = self.total_bytes / PAGE_BYTES
        touched = pages * -math.expm1(-rows * (row_bytes / PAGE_BYTES + 1) / pages)  # of all pages, by so many rows
        bundles = self.total_bytes / (rows * row_bytes)
        times = bundles * touched / pages * (1 - self.most_bytes / self.total_bytes)
        warnings.warn(
            f"shuffle=True takes rows from all over {url}, and the cache holds {self.most_bytes:,} of its "
            f"{self.total_bytes:,} bytes: an epoch will fetch about {times * self.total_bytes:,.0f} bytes, {times:.1f} "
            f'times the store. shuffle="blocks" fetches each byte once; or make the cache as large as the store '
            f"(cache_bytes); or copy all of it to a disk: tokpress copy {url} STORE",
            stacklevel=4,
        )
