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
import pyarrow as pa

from tokpress.batches import Ids, Int64s
from tokpress.engines.base import TokenizerFiles
from tokpress.engines.load import open_files, reference_engine
from tokpress.errors import StoreError, TokenizerError
from tokpress.store.manifest import (
    KEPT,
    PLAN,
    TOKENIZER,
    Manifest,
    Plan,
    Receipt,
    read_manifest,
    read_record,
    verify_hint,
)

if TYPE_CHECKING:
    from tokpress.engines.base import Engine
    from tokpress.store.verify import Report

_INT64 = np.dtype("<i8")


def open_store(path: str | os.PathLike[str], split: str = "train") -> Store:
    directory = Path(path)
    return Store(directory, read_manifest(directory), split)


class Store:
    """One split of a store. `len`, indexing and iteration go by document."""

    def __init__(self, directory: Path, manifest: Manifest, split: str = "train") -> None:
        if split not in manifest.splits:
            raise StoreError(
                f"{directory} has no split {split!r}. Choose one that it has: {', '.join(manifest.splits)}."
            )
        self.path = directory
        self.manifest = manifest
        self.split_name = split
        self._receipts = [receipt for receipt in manifest.splits[split].shards if receipt.docs]
        self._shards: dict[int, Shard] = {}  # opened when first touched
        self._doc_ends = np.cumsum([receipt.docs for receipt in self._receipts], dtype=np.int64)
        self._token_ends = np.cumsum([receipt.tokens for receipt in self._receipts], dtype=np.int64)

    def __repr__(self) -> str:
        return (
            f"Store({str(self.path)!r}, split={self.split_name!r}, num_docs={self.num_docs:,}, "
            f"num_tokens={self.num_tokens:,}, dtype={self.manifest.dtype})"
        )

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
        return Store(self.path, self.manifest, name)

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

        path = self.path / shard.receipt.path(KEPT)
        try:
            return read_kept(path, k)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise StoreError(f"{path} cannot be read: {error}. {verify_hint(self.path)}") from error

    def shard_of(self, i: int) -> str:
        """The name of the shard that holds document i."""
        return self._locate(i)[0].receipt.name

    def doc_lengths(self) -> Int64s:
        """Tokens of every document, in order."""
        lengths = [np.diff(self._shard(i).ends, prepend=0) for i in range(len(self._receipts))]
        return np.concatenate(lengths) if lengths else np.empty(0, np.int64)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        """Ids -> text, with special tokens shown by name."""
        return self.engine.decode(ids)

    def text(self, i: int) -> str:
        """Document i as text, without the BOS and EOS that the build added."""
        ids = self.doc(i)
        begin = int(self.manifest.bos_id is not None)
        return self.decode(ids[begin : len(ids) - int(self.manifest.eos_id is not None)])

    def verify(self) -> Report:
        from tokpress.store.verify import verify_store

        return verify_store(self.path)

    @cached_property
    def plan(self) -> Plan:
        return read_record(self.path / PLAN, Plan)

    @cached_property
    def engine(self) -> Engine:
        """The reference engine, made from the tokenizer files in the store."""
        try:
            return reference_engine(tokenizer_files(self.path, self.manifest), self.manifest.special_tokens)
        except (OSError, KeyError, TokenizerError) as error:
            raise StoreError(
                f"the tokenizer in {self.path / TOKENIZER} cannot be loaded: {error}. {verify_hint(self.path)}"
            ) from error

    def _locate(self, i: int) -> tuple[Shard, int]:
        if not -self.num_docs <= i < self.num_docs:
            raise IndexError(f"document {i} is outside this split's {self.num_docs:,} documents")
        i = i % self.num_docs
        index = int(np.searchsorted(self._doc_ends, i, "right"))
        return self._shard(index), i - (int(self._doc_ends[index - 1]) if index else 0)

    def _shard(self, index: int) -> Shard:
        if index not in self._shards:
            self._shards[index] = Shard(self.path, self._receipts[index], self.dtype)
        return self._shards[index]

    def __getstate__(self) -> dict[str, Any]:
        """Maps are not pickled: the other process opens its own."""
        state = {key: value for key, value in self.__dict__.items() if key != "engine"}
        return state | {"_shards": {}}


class Shard:
    """One shard's files, mapped. A map needs no open file, so that a store may have more shards than there are handles."""

    def __init__(self, store: Path, receipt: Receipt, dtype: np.dtype[Any]) -> None:
        self.receipt = receipt
        self.ids: Ids = _map(store, receipt.path("bin"), dtype, receipt.tokens)
        self.ends: Int64s = _map(store, receipt.path("ends"), _INT64, receipt.docs)
        self.positions: Int64s = _map(store, receipt.path("pos"), _INT64, receipt.docs)


def _map(store: Path, name: str, dtype: np.dtype[Any], count: int) -> Any:
    path = store / name
    if not path.is_file():
        raise StoreError(f"{path} is missing. {verify_hint(store)}")
    try:
        with pa.memory_map(os.fsencode(path)) as file:
            data = file.read_buffer()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}. {verify_hint(store)}") from error
    expected = count * dtype.itemsize
    if len(data) != expected:
        raise StoreError(f"{path} has {len(data):,} bytes instead of {expected:,}. {verify_hint(store)}")
    return np.frombuffer(data, dtype)


def tokenizer_files(store: Path, manifest: Manifest) -> TokenizerFiles:
    """The tokenizer as the store keeps it."""
    prefix = f"{TOKENIZER}/"
    names = [name.removeprefix(prefix) for name in manifest.files if name.startswith(prefix)]
    return open_files(manifest.tokenizer.kind, store / TOKENIZER, names)
