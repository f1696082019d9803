"""A store -> documents, slices and text.

In: a finished store's directory. Out: views into memory-mapped token files; nothing is copied until a slice crosses from
one shard into the next. Only what the manifest lists is opened, and its size is checked as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.arguments import whole_number
from tokpress.batches import Ids, Int64s
from tokpress.engines.load import reference_engine
from tokpress.errors import StoreError, TokenizerError, UsageError
from tokpress.records import KEPT, PLAN, SHARDS, TOKENIZER, Manifest, Plan, Receipt, TokenizerFiles
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.storage.hub_store import HubStorage
from tokpress.storage.object_store import ObjectStorage
from tokpress.store.manifest import read_manifest, read_record, verify_hint
from tokpress.store.open_shards import OpenShards
from tokpress.store.shard import Shard

if TYPE_CHECKING:
    from tokpress.engines.base import Engine
    from tokpress.store.rejects import RejectView
    from tokpress.store.summary import StoreSummary
    from tokpress.store.verify import Report


def open_store(place: str | os.PathLike[str] | Storage, split: str = "train") -> Store:
    storage = open_storage(place)
    manifest = read_manifest(storage)
    if isinstance(storage, ObjectStorage):
        storage.finished(SHARDS)
    return Store(storage, manifest, split)


class Store:
    """One split of a store. `len`, indexing and iteration go by document.

    `tokpress.open` makes one; `storage` and `manifest` are where it lies and what it says of itself.

        store = tokpress.open("tokens")
        store.num_docs, store.num_tokens
        store.doc(0), store.text(0), store.where(0)
    """

    def __init__(self, storage: Storage, manifest: Manifest, split: str = "train") -> None:
        if split not in manifest.splits:
            raise StoreError(
                f"{storage.url} has no split {split!r}. Choose one that it has: {', '.join(manifest.splits)}."
            )
        self.storage = storage
        self.manifest = manifest
        self.split_name = split
        self._receipts = [receipt for receipt in manifest.splits[split].shards if receipt.docs]
        self._shards = OpenShards[Shard]()
        self._doc_ends = np.cumsum([receipt.docs for receipt in self._receipts], dtype=np.int64)
        self._token_ends = np.cumsum([receipt.tokens for receipt in self._receipts], dtype=np.int64)

    def __repr__(self) -> str:
        return (
            f"Store({self.url!r}, split={self.split_name!r}, num_docs={self.num_docs:,}, "
            f"num_tokens={self.num_tokens:,}, dtype={self.manifest.dtype})"
        )

    def _repr_html_(self) -> str:
        from tokpress.store.notebook import store_html

        return store_html(self)

    @property
    def url(self) -> str:
        """Where it is, as a user names it."""
        return self.storage.url

    @property
    def path(self) -> Path:
        """Where it is, on this machine's disk."""
        if isinstance(self.storage, ObjectStorage | HubStorage):
            raise UsageError(
                f"{self.url} is not on this machine, and what reads or links all of its files needs them here. Copy it "
                f"first: tokpress copy {self.url} STORE"
            )
        return self.storage.local("")

    @property
    def num_docs(self) -> int:
        return int(self._doc_ends[-1]) if len(self._doc_ends) else 0

    @property
    def num_tokens(self) -> int:
        return int(self._token_ends[-1]) if len(self._token_ends) else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.manifest.dtype).newbyteorder("<")

    @property
    def fingerprint(self) -> str:
        return self.manifest.fingerprint

    def split(self, name: str) -> Store:
        return Store(self.storage, self.manifest, name)

    def __len__(self) -> int:
        return self.num_docs

    @overload
    def __getitem__(self, key: int) -> Ids: ...
    @overload
    def __getitem__(self, key: slice) -> list[Ids]: ...
    def __getitem__(self, key: int | slice) -> Ids | list[Ids]:
        if isinstance(key, slice):
            return [self.doc(i) for i in range(*key.indices(self.num_docs))]
        return self.doc(key)

    def __iter__(self) -> Iterator[Ids]:
        for index in range(len(self._receipts)):
            shard = self._shard(index)
            start = 0
            for end in shard.ends.tolist():
                yield shard.ids[start:end]
                start = end

    def doc(self, i: int) -> Ids:
        """The ids of document i, as a view into the mapped file."""
        shard, k = self._locate(i)
        start = int(shard.ends[k - 1]) if k else 0
        return shard.ids[start : int(shard.ends[k])]

    def mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Of each token of document i whether it is in the loss, 0 or 1; None if the store has no masks."""
        shard, k = self._locate(i)
        start = int(shard.ends[k - 1]) if k else 0
        return None if shard.mask is None else shard.mask[start : int(shard.ends[k])]

    def tokens(self, start: int, stop: int) -> Ids:
        """The ids [start, stop) of all documents end to end; a view where they lie in one shard."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start}:{stop} are outside this split's {self.num_tokens:,} tokens")
        parts = []
        index = int(np.searchsorted(self._token_ends, start, "right"))
        while start < stop:
            begin = int(self._token_ends[index - 1]) if index else 0
            end = min(stop, int(self._token_ends[index]))
            parts.append(self._shard(index).ids[start - begin : end - begin])
            start, index = end, index + 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def where(self, i: int) -> tuple[str, int]:
        """Path of the input that document i comes from, and its position there (byte offset or row)."""
        shard, k = self._locate(i)
        runs = shard.receipt.sources
        run = int(np.searchsorted(np.cumsum([docs for _, docs in runs]), k, "right"))
        return self.plan.inputs[runs[run][0]].path, int(shard.positions[k])

    def kept(self, i: int) -> dict[str, str | None]:
        """The fields of document i that `--keep` kept beside it; none without it."""
        shard, k = self._locate(i)
        if KEPT not in shard.receipt.files:
            return {}
        from tokpress.store.kept import read_kept

        key = shard.receipt.path(KEPT)
        try:
            return read_kept(self.storage, key, k)
        except (pa.ArrowException, OSError, IndexError) as error:
            place = self.storage.location(key)
            raise StoreError(f"{place} cannot be read: {error}. {verify_hint(self.storage)}") from error

    def shard_of(self, i: int) -> str:
        """The name of the shard that holds document i."""
        return self._locate(i)[0].receipt.name

    def doc_lengths(self) -> Int64s:
        """Tokens of every document, in order."""
        lengths = [np.diff(self._shard(i).ends, prepend=0) for i in range(len(self._receipts))]
        return np.concatenate(lengths) if lengths else np.empty(0, np.int64)

    def spans(self, docs: Int64s) -> tuple[Int64s, Int64s]:
        """Where documents start and stop in the stream of this split, its documents end to end; in any order."""
        if len(docs) and not (docs.min() >= 0 and docs.max() < self.num_docs):
            wrong = int(docs.min()) if docs.min() < 0 else int(docs.max())
            raise IndexError(f"document {wrong} is outside this split's {self.num_docs:,} documents")
        starts, stops = np.zeros(len(docs), np.int64), np.empty(len(docs), np.int64)
        shards = np.searchsorted(self._doc_ends, docs, "right")
        for index in np.unique(shards).tolist():
            here = np.flatnonzero(shards == index)
            shard = self._shard(index)
            k = docs[here] - (self._doc_ends[index] - shard.receipt.docs)
            starts[here] = np.where(k > 0, shard.ends[k - 1], 0)
            stops[here] = shard.ends[k]
            begin = self._token_ends[index] - shard.receipt.tokens
            starts[here] += begin
            stops[here] += begin
        return starts, stops

    def end_blocks(self, block_docs: int = 2**18) -> Iterator[Int64s]:
        """Where every document ends in the stream of this split, so many documents at a time and no more in memory."""
        begin = 0
        for receipt in self._receipts:
            shard = Shard(self.storage, receipt, self.dtype)  # maps of its own, gone when the next shard is read
            for first in range(0, receipt.docs, block_docs):
                yield shard.ends[first : first + block_docs] + begin
            begin += receipt.tokens

    @property
    def shard_token_ends(self) -> Int64s:
        """Where each shard ends in the stream of all documents. Shards without documents are not counted."""
        return self._token_ends

    @property
    def shard_doc_ends(self) -> Int64s:
        """How many documents there are up to and with each shard."""
        return self._doc_ends

    def shard(self, index: int) -> Shard:
        """A shard's files, mapped. It stays open as long as there is room for it."""
        return self._shard(index)

    def shard_receipt(self, index: int) -> Receipt:
        """What is in a shard. Shards without documents are not counted."""
        return self._receipts[index]

    def open_shard(self, index: int) -> Shard:
        """The same, with maps of its own, for whoever keeps it."""
        return Shard(self.storage, self._receipts[index], self.dtype)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        """Ids -> text, with special tokens shown by name."""
        return self.engine.decode(ids)

    def text(self, i: int) -> str:
        """Document i as text, without the BOS and EOS that the build added. A record that was cut may have lost them."""
        ids, manifest = self.doc(i), self.manifest
        if len(ids) and manifest.bos_id is not None and ids[0] == manifest.bos_id:
            ids = ids[1:]
        if len(ids) and manifest.eos_id is not None and ids[-1] == manifest.eos_id:
            ids = ids[:-1]
        return self.decode(ids)

    def summary(self, *, lengths: bool = True) -> StoreSummary:
        """The store in numbers. Without `lengths` nothing is read but the manifest."""
        from tokpress.store.summary import summarize

        return summarize(self, lengths=lengths)

    def rejects(self, *, reason: str | None = None, offset: int = 0, limit: int | None = None) -> Iterator[RejectView]:
        """The records that were read but not written, in the order of the inputs; of all splits, read as they are asked
        for. `reason` chooses those of one kind, and `offset` and `limit` a page of them."""
        from tokpress.store.rejects import read_rejects

        return read_rejects(self.storage, self.manifest, reason=reason, offset=offset, limit=limit)

    def verify(self) -> Report:
        from tokpress.store.verify import verify_store

        return verify_store(self.storage)

    @cached_property
    def plan(self) -> Plan:
        return read_record(self.storage, PLAN, Plan)

    @cached_property
    def engine(self) -> Engine:
        """The reference engine, made from the tokenizer files in the store."""
        try:
            return reference_engine(tokenizer_files(self.storage, self.manifest), self.manifest.special_tokens)
        except (OSError, KeyError, TokenizerError) as error:
            raise StoreError(
                f"the tokenizer in {self.storage.location(TOKENIZER)} cannot be loaded: {error}. "
                f"{verify_hint(self.storage)}"
            ) from error

    def _locate(self, i: int) -> tuple[Shard, int]:
        i = whole_number("document", i)
        if not -self.num_docs <= i < self.num_docs:
            raise IndexError(f"document {i} is outside this split's {self.num_docs:,} documents")
        i = i % self.num_docs
        index = int(np.searchsorted(self._doc_ends, i, "right"))
        return self._shard(index), i - (int(self._doc_ends[index - 1]) if index else 0)

    def _shard(self, index: int) -> Shard:
        shard = self._shards.get(index, self.open_shard)
        shard.look_again()
        return shard

    def __getstate__(self) -> dict[str, Any]:
        """Maps are not pickled: the other process opens its own."""
        return {key: value for key, value in self.__dict__.items() if key not in ("engine", "_shards")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._shards = OpenShards[Shard]()


def tokenizer_files(storage: Storage, manifest: Manifest) -> TokenizerFiles:
    """The tokenizer as the store keeps it."""
    keys = [key for key in manifest.files if key.startswith(f"{TOKENIZER}/")]
    return TokenizerFiles(
        manifest.tokenizer.kind, {key.removeprefix(f"{TOKENIZER}/"): storage.read(key) for key in keys}
    )
