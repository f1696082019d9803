"""The documents of a split, end to end, as the loader reads them.

In: the pieces that a packing names. Out: the ranges of shards that hold them, the documents in these, the shards' memory. A
shard is opened, and its checksum compared if asked for, when it is first touched; the last thousands stay open.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import numpy as np

from tokpress.errors import StoreError
from tokpress.loader.memory.gather import Mapped
from tokpress.loader.memory.ranges import Ranges, Segments, cut_at_documents, ragged
from tokpress.loader.memory.read_ahead import ReadAhead, expect_order
from tokpress.loader.memory.remote import StorePages
from tokpress.packing.base import Pieces
from tokpress.store.manifest import verify_hint
from tokpress.store.open_shards import OpenShards
from tokpress.store.reader import Store
from tokpress.store.shard import Shard

Verify = Literal["size", "first-touch"]  # sizes are always compared


class OpenShard(NamedTuple):
    """A shard's files, mapped and found to be sound."""

    files: Shard
    ids: Mapped
    mask: Mapped | None


class TokenStream:
    """Of one split. Any number of threads may use it."""

    def __init__(self, store: Store, verify: Verify = "size", pages: StorePages | None = None) -> None:
        """`pages`: how ids get here, if the store lies elsewhere."""
        self.store = store
        self.pages = pages
        self.has_mask = any("mask" in receipt.files for receipt in store.manifest.splits[store.split_name].shards)
        self.ahead: ReadAhead | None = None  # where rows come from all over
        self._verify = verify
        self._open = OpenShards[OpenShard]()
        self._checked: set[int] = set()  # shards whose checksums were compared
        self._token_ends = store.shard_token_ends
        self._token_starts = np.concatenate(([0], self._token_ends[:-1])).astype(np.int64)
        self._doc_starts = np.concatenate(([0], store.shard_doc_ends[:-1])).astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        """Maps and locks stay here: the other process opens, and checks, for itself."""
        return {"store": self.store, "pages": self.pages, "verify": self._verify, "scattered": self.ahead is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        scattered = state.pop("scattered")
        self.__init__(**state)  # type: ignore[misc]
        self.expect(scattered=scattered)

    def expect(self, *, scattered: bool) -> None:
        """How tokens will be asked for: from all over, or in long ranges, which the system itself reads ahead."""
        self.ahead = ReadAhead() if scattered else None
        for shard in self._open.all():
            self._expect_order(shard)

    def _expect_order(self, shard: OpenShard) -> None:
        for mapped in (shard.ids, shard.mask):
            if mapped is not None:
                expect_order(mapped.array, scattered=self.ahead is not None)

    def shard(self, index: int) -> OpenShard:
        """A shard whose files are as long as they should be and, if asked for, hold what they should."""
        shard = self._open.get(index, self._open_shard)
        shard.files.look_again()
        return shard

    def _open_shard(self, index: int) -> OpenShard:
        files = self.store.open_shard(index)
        if self._verify == "first-touch" and index not in self._checked:
            self._check(files)
            self._checked.add(index)
        ids, mask = (files.ids, files.mask) if self.pages is None else self.pages.arrays(index)
        shard = OpenShard(files, Mapped(ids), None if mask is None else Mapped(mask))
        self._expect_order(shard)
        return shard

    def holding(self, ranges: Ranges) -> AbstractContextManager[None]:
        """What these ranges have is in memory, or on this machine's disk, while the block runs."""
        return nullcontext() if self.pages is None else self.pages.holding(ranges)

    def fill(self, ranges: Ranges) -> None:
        """Gets what these ranges have, if it lies elsewhere: they will be asked for soon."""
        if self.pages is not None:
            self.pages.fill(ranges)

    def ids(self, index: int) -> Mapped:
        return self.shard(index).ids

    def mask(self, index: int) -> Mapped | None:
        """1 where there is to be loss; None: everywhere."""
        return self.shard(index).mask

    def _check(self, shard: Shard) -> None:
        for extension, entry in shard.receipt.files.items():
            storage, key = self.store.storage, shard.receipt.path(extension)
            if storage.checksum(key) != entry.xxh3:
                raise StoreError(
                    f"{storage.location(key)} was changed after the build: its checksum does not match. "
                    f"{verify_hint(storage)}, "
                    "then copy that file again or build the store again with --overwrite."
                )

    def ranges(self, pieces: Pieces) -> Ranges:
        """Cuts pieces where a shard ends."""
        first = self._token_ends.searchsorted(pieces.starts, "right")
        last = self._token_ends.searchsorted(pieces.stops)  # the shard of the last token, as no piece is empty
        if (first == last).all():
            begin = self._token_starts[first]
            return Ranges(pieces.rows, pieces.columns, first, pieces.starts - begin, pieces.stops - pieces.starts)
        piece, within = ragged(last - first + 1)
        shards = first[piece] + within
        starts = np.maximum(pieces.starts[piece], self._token_starts[shards])
        stops = np.minimum(pieces.stops[piece], self._token_ends[shards])
        columns = pieces.columns[piece] + starts - pieces.starts[piece]
        ranges = Ranges(pieces.rows[piece], columns, shards, starts - self._token_starts[shards], stops - starts)
        return ranges.select(ranges.lengths > 0)  # a shard may have documents, but no tokens

    def segments(self, ranges: Ranges) -> Segments:
        """Cuts ranges where a document ends."""
        parts = []
        for index in np.flatnonzero(np.bincount(ranges.shards)).tolist():
            here = np.flatnonzero(ranges.shards == index)
            starts, ends = ranges.starts[here], self.shard(index).files.ends
            rows, columns, lengths, docs, offsets = cut_at_documents(
                ends, ranges.rows[here], ranges.columns[here], starts, starts + ranges.lengths[here]
            )
            parts.append((rows, columns, lengths, docs + self._doc_starts[index], offsets))
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 5
        order = np.lexsort((joined[1], joined[0]))
        return Segments(*(column[order] for column in joined))
