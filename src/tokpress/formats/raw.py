"""What formats of raw ids share.

In: the shards of a split. Out: one file of all of them, each shard a stretch of it; or a file for each group of shards that
is large enough for a reader to start from; and for files that are to be imported, their paths and, where there is no
index, the ends of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.batches import Ids, Int64s, places
from tokpress.errors import InputError, UsageError
from tokpress.formats.base import Advance, Export, Part, Write, Written, shards_of
from tokpress.formats.writing import BLOCK_BYTES, PartWriter
from tokpress.records import Receipt
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

LEAST_TOKENS = 2**20  # in a file, if the split has as many: readers cut sequences file by file and refuse a shorter one


def shard_groups(store: Store) -> list[range]:
    """Consecutive shards that make one file: each its own where it is large enough, several where they are small.

    A split that takes one document in a thousand has as many shards as there are units, with hardly anything in them.
    """
    receipts = shards_of(store)
    groups: list[range] = []
    first = tokens = 0
    for number, receipt in enumerate(receipts):
        tokens += receipt.tokens
        if tokens >= LEAST_TOKENS:
            groups.append(range(first, number + 1))
            first, tokens = number + 1, 0
    if first < len(receipts):
        before = groups.pop().start if groups else first
        groups.append(range(before, len(receipts)))
    return groups


def group_tokens(store: Store, group: range) -> int:
    return sum(shards_of(store)[number].tokens for number in group)


def group_ends(store: Store, group: range) -> Int64s:
    """Where the documents of these shards end, counted from the first one's start."""
    ends = [store.shard(number).ends for number in group]
    if len(ends) == 1:
        return ends[0]
    before = np.cumsum([0, *(shards_of(store)[number].tokens for number in group[:-1])])
    return np.concatenate([each + tokens for each, tokens in zip(ends, before.tolist(), strict=True)])


def write_ids(part: PartWriter, store: Store, group: range, name: str) -> None:
    """A link of a shard, or several end to end."""
    if len(group) == 1:
        part.link(shards_of(store)[group[0]], "bin", name)
    else:
        part.write(name, (block for number in group for block in blocks_of(store.shard(number).ids)))


def write_mask(part: PartWriter, store: Store, group: range, name: str) -> None:
    """Their masks; all of a shard counts if it has none, and others have."""
    receipt = shards_of(store)[group[0]]
    if len(group) == 1 and "mask" in receipt.files:
        part.link(receipt, "mask", name)
        return
    masks = (store.shard(number) for number in group)
    part.write(
        name,
        (
            np.ascontiguousarray(block)
            for shard in masks
            for block in blocks_of(np.broadcast_to(np.uint8(1), shard.ids.shape) if shard.mask is None else shard.mask)
        ),
    )


def joined_parts(export: Export, store: Store, name: str) -> list[Part]:
    """All shards end to end in one file. A single one is linked; without a token there is no file, which no reader maps."""
    shards = shards_of(store)
    if not store.num_tokens:
        return []
    if len(shards) == 1:
        return [Part(name, store.num_tokens * store.dtype.itemsize, _linked(export, shards[0], name))]
    return [
        Part(f"{name}-{number:05d}", receipt.files["bin"].bytes, _stretch(export, store, name, number))
        for number, receipt in enumerate(shards)
    ]


def _linked(export: Export, receipt: Receipt, name: str) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        part.link(receipt, "bin", name)
        return part.receipt()

    return write


def _stretch(export: Export, store: Store, name: str, number: int) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        width = store.dtype.itemsize
        ids: Ids = store.shard(number).ids
        start = int(store.shard_token_ends[number]) - len(ids)
        part.write_at(name, store.num_tokens * width, start * width, blocks_of(ids))
        return part.receipt()

    return write


def blocks_of(array: Any) -> Iterator[Any]:
    """A mapped array in pieces, so that no more of it than one has to be in memory."""
    step = max(BLOCK_BYTES // array.itemsize, 1)
    return (array[first : first + step] for first in range(0, len(array), step))


def token_paths(paths: Sequence[Path], suffix: str, *, beside: str | None = None) -> list[Path]:
    """The token files that a user means: files, prefixes of their names, or all in a directory, by name.

    `beside`: the ending that stands beside each, instead of `suffix`.
    """
    found = [file for path in paths for file in _found(path, suffix, beside)]
    for index in [file.with_suffix(beside) for file in found] if beside else []:
        if not index.is_file():
            raise InputError(
                f"{index.with_suffix(suffix)} has no {index.name} beside it, which says where documents end."
            )
    return found


def _found(path: Path, suffix: str, beside: str | None) -> list[Path]:
    if path.is_dir():
        found = sorted(entry for entry in path.iterdir() if entry.name.endswith(suffix) and entry.is_file())
    elif path.is_file():
        named = path.with_suffix(suffix) if beside and path.suffix == beside else path
        found = [named] if named.is_file() else []
    else:
        named = path.with_name(path.name + suffix)
        found = [named] if named.is_file() else []
    if not found:
        raise UsageError(f"no *{suffix} at {path}. Name a token file, or a directory of them.")
    return found


def count_ids(path: Path, dtype: np.dtype[Any]) -> int:
    """How many ids a file of nothing else has."""
    size, width = path.stat().st_size, dtype.itemsize
    if size % width:
        raise InputError(
            f"{path} has {size:,} bytes: that are no {8 * width}-bit ids. Is it whole, and are they of that width?"
        )
    return size // width


def ends_after(ids: Ids, token: int) -> Int64s:
    """Where documents end that end with `token`, and the end of what follows the last of them, if anything does."""
    found, place = [np.empty(0, np.int64)], 0
    for block in blocks_of(ids):
        found.append(places(block == token) + (place + 1))
        place += len(block)
    ends = np.concatenate(found)
    cut = place > (ends[-1] if len(ends) else 0)
    return np.append(ends, place) if cut else ends
