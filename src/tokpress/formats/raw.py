"""What formats of raw ids share.

In: the shards of a split. Out: one file of all of them, each shard a stretch of it; lengths of documents; and for files that
are to be imported, their paths and, where there is no index, the ends of documents.
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


def joined_parts(export: Export, store: Store, name: str) -> list[Part]:
    """All shards end to end in one file. A single one is linked."""
    shards = shards_of(store)
    size = store.num_tokens * store.dtype.itemsize
    if len(shards) == 1:
        return [Part(name, size, _linked(export, shards[0], name))]
    if not shards:
        return [Part(name, 0, _stretch(export, store, name, None))]
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


def _stretch(export: Export, store: Store, name: str, number: int | None) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        width = store.dtype.itemsize
        ids: Ids = np.empty(0, store.dtype) if number is None else store.shard(number).ids
        start = 0 if number is None else int(store.shard_token_ends[number]) - len(ids)
        part.write_at(name, store.num_tokens * width, start * width, blocks_of(ids))
        return part.receipt()

    return write


def write_mask(part: PartWriter, receipt: Receipt, name: str) -> None:
    """The mask of a shard; all of it counts if it has none, and others have."""
    if "mask" in receipt.files:
        part.link(receipt, "mask", name)
    else:
        ones = np.broadcast_to(np.uint8(1), receipt.tokens)
        part.write(name, (np.ascontiguousarray(block) for block in blocks_of(ones)))


def blocks_of(array: Any) -> Iterator[Any]:
    """A mapped array in pieces, so that no more of it than one has to be in memory."""
    step = max(BLOCK_BYTES // array.itemsize, 1)
    return (array[first : first + step] for first in range(0, len(array), step))


def lengths_of(store: Store, number: int) -> Int64s:
    """Tokens of each document of a shard."""
    lengths: Int64s = np.diff(store.shard(number).ends, prepend=0)
    return lengths


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
