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

from tokpress.batches import Ids, Int64s
from tokpress.errors import StoreError
from tokpress.store.manifest import PLAN, SHARDS, TOKENIZER, Manifest, Plan, Receipt, decode, read_manifest

if TYPE_CHECKING:
    from tokpress.engines.base import Engine
    from tokpress.store.verify import Report


def open_store(path: str | os.PathLike[str], split: str = "train") -> Store:
    directory = Path(path)
    return Store(directory, read_manifest(directory), split)


class Store:
    """One split of a store. `len`, indexing and iteration go by document."""

    def __init__(self, directory: Path, manifest: Manifest, split: str = "train") -> None:
        if split not in manifest.splits:
            raise StoreError(f"{directory} has no split {split!r}; it has {', '.join(manifest.splits)}.")
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
        return self.manifest.splits[self.split_name].docs

    @property
    def num_tokens(self) -> int:
        return self.manifest.splits[self.split_name].tokens

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
        return decode((self.path / PLAN).read_bytes(), Plan, str(self.path / PLAN))

    @cached_property
    def engine(self) -> Engine:
        """The reference engine, made from the tokenizer files in the store."""
        from tokpress.engines.load import open_files, reference_engine

        kind = self.manifest.tokenizer.kind
        prefix = f"{TOKENIZER}/"
        names = [name.removeprefix(prefix) for name in self.manifest.files if name.startswith(prefix)]
        return reference_engine(open_files(kind, self.path / TOKENIZER, names), self.manifest.special_tokens)

    def _locate(self, i: int) -> tuple[Shard, int]:
        if i < 0:
            i += self.num_docs
        if not 0 <= i < self.num_docs:
            raise IndexError(f"document {i} is outside this split's {self.num_docs:,} documents")
        index = int(np.searchsorted(self._doc_ends, i, "right"))
        return self._shard(index), i - (int(self._doc_ends[index - 1]) if index else 0)

    def _shard(self, index: int) -> Shard:
        if index not in self._shards:
            self._shards[index] = Shard(self.path / SHARDS, self._receipts[index], self.dtype)
        return self._shards[index]

    def __getstate__(self) -> dict[str, Any]:
        """Maps are not pickled: the other process opens its own."""
        state = {key: value for key, value in self.__dict__.items() if key != "engine"}
        return state | {"_shards": {}}


class Shard:
    """One shard's files, mapped."""

    def __init__(self, directory: Path, receipt: Receipt, dtype: np.dtype[Any]) -> None:
        self.receipt = receipt
        self.ids: Ids = self._map(directory, "bin", dtype)
        self.ends: Int64s = self._map(directory, "ends", np.dtype("<i8"))
        self.positions: Int64s = self._map(directory, "pos", np.dtype("<i8"))

    def _map(self, directory: Path, extension: str, dtype: np.dtype[Any]) -> Any:
        path = directory / f"{self.receipt.name}.{extension}"
        expected = self.receipt.files[extension].bytes
        try:
            found = path.stat().st_size
        except OSError as error:
            raise StoreError(f"{path} is missing. Look at the store: tokpress verify {directory.parent}") from error
        if found != expected:
            raise StoreError(
                f"{path} has {found:,} bytes instead of {expected:,}. Look at the store: tokpress verify {directory.parent}"
            )
        if not expected:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        return np.asarray(np.memmap(path, dtype, "r"))
