"""A stored packing: STORE/packs/NAME/.

In: the arrays of a plan. Out: files that are mapped when read, and `index.json`, written last: without it there is no plan.
The index says of which store, split, length and options the plan is; one that does not match is refused with the command
that makes it again. Plans may come from anyone: sizes are checked when a file is opened, numbers when they are used.

    starts.bin     i64  where each piece starts in the stream, ascending; one more, the stream's end. A piece stops where
                        the next one starts, or after seq_len tokens
    ends.bin       i64  a sequence: how many pieces stand in it and in all before it
    order.bin      u32  the pieces of sequence 0, of sequence 1, ...
    sequences.bin  u32  a piece: the sequence that it stands in
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tokpress.errors import StoreError
from tokpress.packing.assignment import number_dtype
from tokpress.packing.waste import Waste
from tokpress.records import PACKS, Count, FileEntry
from tokpress.storage.base import Storage, checksum
from tokpress.store.manifest import encode, read_record
from tokpress.store.reader import Store, open_store
from tokpress.store.shard import map_array
from tokpress.store.verify import Problem

INDEX = "index.json"
FORMAT = "tokpress-pack"
FORMAT_VERSION = 1
FILES = ("starts", "ends", "order", "sequences")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")

LongDocs = Literal["split", "truncate"]


class PlanKey(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan follows from: equal keys, equal bytes."""

    fingerprint: str  # of the store
    split: str
    method: str
    seq_len: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    long_docs: LongDocs

    @property
    def name(self) -> str:
        """Of the plan's directory. Two plans of one store that differ in anything have different ones."""
        name = f"{self.split}-{self.method}-{self.seq_len}" + ("-truncate" if self.long_docs == "truncate" else "")
        if not _SAFE_NAME.fullmatch(name):
            raise StoreError(f"a plan cannot be named {name!r}: the split's name is no plain name. Do not trust it.")
        return name


class PlanIndex(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    key: PlanKey
    pieces: Count
    sequences: Count
    waste: Waste
    files: dict[str, FileEntry]
    checksum: str = ""  # of this file with the checksum left empty


def plan_storage(store: Storage, key: PlanKey) -> Storage:
    """Where a store keeps this plan."""
    return store.below(f"{PACKS}/{key.name}")


def pack_command(store: Storage, key: PlanKey) -> str:
    """What to run to make this plan."""
    words = ["tokpress", "pack", store.url, "--seq-len", str(key.seq_len), "--method", key.method]
    words += ["--split", key.split] if key.split != "train" else []
    words += ["--long-docs", key.long_docs] if key.long_docs != "split" else []
    return shlex.join(words)


class StoredPlan:
    """A plan that matches its store; its arrays are mapped."""

    def __init__(self, store: Store, key: PlanKey) -> None:
        self._storage = plan_storage(store.storage, key)
        self._advice = f"Make the plan again: {pack_command(store.storage, key)}"
        self.index = self._read_index(store, key)
        pieces, numbers = self.index.pieces, number_dtype(self.index.pieces)
        self.starts = self._map("starts", np.dtype("<i8"), pieces + 1)
        self.ends = self._map("ends", np.dtype("<i8"), self.index.sequences)
        self.order = self._map("order", numbers, pieces)
        self.sequences = self._map("sequences", numbers, pieces)

    def damaged(self, file: str, what: str) -> StoreError:
        return StoreError(f"{self._storage.location(file)} is damaged: {what}. {self._advice}")

    def check(self) -> None:
        """Raises StoreError unless every byte is what was written."""
        for name, entry in self.index.files.items():
            if self._storage.checksum(f"{name}.bin") != entry.xxh3:
                raise self.damaged(f"{name}.bin", "its checksum does not match")

    def _read_index(self, store: Store, key: PlanKey) -> PlanIndex:
        if not self._storage.exists(INDEX):
            raise StoreError(
                f"{store.url} has no {key.method} plan for sequences of {key.seq_len:,} tokens of split {key.split!r}. "
                f"Make it: {pack_command(store.storage, key)}"
            )
        try:
            index = read_record(self._storage, INDEX, PlanIndex)
            intact = self._storage.read(INDEX) == encode(_sealed(index))
        except StoreError as error:
            raise self.damaged(INDEX, str(error.__cause__)) from error
        if index.format_version != FORMAT_VERSION:
            raise StoreError(
                f"{self._storage.location(INDEX)} has format version {index.format_version}; this tokpress reads version "
                f"{FORMAT_VERSION}. Update tokpress. {self._advice}"
            )
        if not intact or index.format != FORMAT:
            raise self.damaged(INDEX, "its checksum does not match")
        if index.key.fingerprint != key.fingerprint:
            raise StoreError(
                f"{self._storage.url} is a plan of other tokens than {store.url} holds now. {self._advice}"
            )
        if index.key != key or index.files.keys() != set(FILES):
            raise self.damaged(INDEX, f"it is not the plan that belongs into {key.name}")
        return index

    def _map(self, name: str, dtype: np.dtype[Any], count: int) -> Any:
        return map_array(self._storage, f"{name}.bin", dtype, count, self._advice)


def _sealed(index: PlanIndex) -> PlanIndex:
    return msgspec.structs.replace(index, checksum=checksum(encode(msgspec.structs.replace(index, checksum=""))))


def plan_problems(store: Storage) -> list[Problem]:
    """What is wrong with the plans of a store that is sound itself; each message says how to make the plan again."""
    problems = []
    for name in store.children(PACKS):
        index, here = f"{PACKS}/{name}/{INDEX}", store.location(f"{PACKS}/{name}")
        if not store.exists(index):
            continue
        try:
            key = read_record(store, index, PlanIndex).key
            if key.name != name:
                raise StoreError(f"{here}/{INDEX} is not the plan that belongs there. Remove {here}.")
            opened = open_store(store, key.split)
            StoredPlan(opened, msgspec.structs.replace(key, fingerprint=opened.fingerprint)).check()
        except StoreError as error:
            problems.append(Problem(index, str(error)))
    return problems


class PlanWriter:
    """Writes a plan's files; `with` it, what was written is removed if something goes wrong before `seal`."""

    def __init__(self, store: Storage, key: PlanKey) -> None:
        self._store = store
        self.storage = plan_storage(store, key)
        self._key = key
        self._files: dict[str, FileEntry] = {}

    def __enter__(self) -> PlanWriter:
        self._store.prepare(PACKS, f"{PACKS}/{self._key.name}")
        self._store.barrier("", PACKS)
        self.storage.delete(INDEX)  # an older plan is gone before its files change
        self.storage.delete_abandoned("")
        self.storage.barrier("")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.storage.exists(INDEX):
            for name in FILES:
                self.storage.delete(f"{name}.bin")

    def write(self, name: str, blocks: Iterable[Any]) -> None:
        """One file, from arrays that are little-endian."""
        with self.storage.create(f"{name}.bin") as file:
            for block in blocks:
                file.write(block)
        self._files[name] = FileEntry(file.bytes, file.checksum)

    def seal(self, *, pieces: int, sequences: int, waste: Waste) -> None:
        """From here on the plan exists."""
        self.storage.barrier("")
        index = PlanIndex(key=self._key, pieces=pieces, sequences=sequences, waste=waste, files=self._files)
        self.storage.put(INDEX, encode(_sealed(index)))
