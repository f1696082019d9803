"""Which part of a store to look at, where all of it would take long.

In: how many documents or tokens there are. Out: evenly spaced blocks of them, the same each time: a sample that a person
can reload and find unchanged. A store of 10^10 tokens is looked at in a few hundred places and not read through.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokpress.batches import Ids, Int64s
from tokpress.errors import StoreError
from tokpress.store.manifest import verify_hint
from tokpress.store.reader import Store

SAMPLE_DOCS = 2**18
SAMPLE_TOKENS = 2**21
BLOCKS = 256  # at least, each in one shard: few enough to open their files, many enough for one odd file not to matter
_MOST_SHARDS = 1024  # that are opened to look at everything


def blocks(count: int, most: int, *, least_blocks: int = BLOCKS) -> list[range]:
    """All of `count` things as one range if they are at most `most`; else evenly spaced ranges of `most` in all."""
    if count <= most:
        return [range(count)] if count else []
    size = most // least_blocks
    starts = np.linspace(0, count - size, least_blocks).astype(np.int64).tolist()
    return [range(start, start + size) for start in starts]


def sampled_lengths(store: Store, most: int = SAMPLE_DOCS) -> Int64s:
    """Tokens of documents: of all of them, or of a sample."""
    few = len(store.shard_doc_ends) <= _MOST_SHARDS
    chosen = blocks(store.num_docs, most if few else min(most, store.num_docs - 1))
    found = [_lengths(store, part) for block in chosen for part in _within_shards(store, block, whole=len(chosen) == 1)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def sampled_tokens(store: Store, most: int = SAMPLE_TOKENS) -> Iterator[Ids]:
    """Ids: all of them, or a sample; a block at a time."""
    few = len(store.shard_doc_ends) <= _MOST_SHARDS
    for block in blocks(store.num_tokens, most if few else min(most, store.num_tokens - 1)):
        yield store.tokens(block.start, block.stop)


def _within_shards(store: Store, block: range, *, whole: bool) -> Iterator[tuple[int, range]]:
    """A block of documents as (shard, documents in it). Of a sample only the part in its first shard is taken: that opens
    no more shards than there are blocks."""
    ends = store.shard_doc_ends
    start = block.start
    while start < block.stop:
        index = int(np.searchsorted(ends, start, "right"))
        begin = int(ends[index - 1]) if index else 0
        stop = min(block.stop, int(ends[index]))
        yield index, range(start - begin, stop - begin)
        if not whole:
            return
        start = stop


def _lengths(store: Store, part: tuple[int, range]) -> Int64s:
    """Read from the stored ends of these documents alone: to check those of a whole shard means to read all of them."""
    index, docs = part
    shard = store.open_shard(index)  # maps of its own, gone with what was read
    first = int(shard.stored_ends[docs.start - 1]) if docs.start else 0
    lengths: Int64s = np.diff(shard.stored_ends[docs.start : docs.stop], prepend=first)
    if len(lengths) and (lengths.min() < 0 or first < 0 or first + int(lengths.sum()) > shard.receipt.tokens):
        place = store.storage.location(shard.receipt.path("ends"))
        raise StoreError(f"{place} is damaged: its document ends do not rise. {verify_hint(store.storage)}")
    return lengths
