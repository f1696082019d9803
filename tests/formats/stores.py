"""Stores of any documents: several splits and shards, u16 and u32, with and without masks. They pass `tokpress verify`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from conftest import file_checksum
from hypothesis import strategies as st

import tokpress
from tokpress.records import (
    PLAN,
    SHARDS,
    TRAIN,
    Counts,
    FileEntry,
    Plan,
    Receipt,
    Slice,
    Split,
)
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode, read_manifest, read_record, write_manifest

Masks = bool | Literal["some"]  # of all shards, of none, or of every second one
EOS = 256  # of the `bytes` tokenizer
Lengths = Mapping[str, Sequence[Sequence[int]]]  # split -> shard -> tokens of each document

# Empty documents, empty shards and splits, one long document, many tiny ones.
shards = st.lists(st.lists(st.integers(0, 5) | st.integers(0, 60), max_size=10), max_size=4)
splits = st.fixed_dictionaries({"train": shards}, optional={"val": shards, "test-2": shards})


def template(directory: Path) -> Path:
    """A store of the `bytes` tokenizer, to be furnished with other tokens."""
    directory.mkdir(parents=True)
    (directory / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    return tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "store").path


def furnish(
    store: Path, lengths: Lengths, *, dtype: str = "uint16", masks: Masks = False, eos: bool = True, seed: int = 0
) -> Path:
    """Fills a store with documents of these lengths; every one that is not empty ends with EOS, if there is one."""
    rng = np.random.default_rng(seed)
    for path in (store / SHARDS).iterdir():
        path.unlink()
    made: dict[str, Split] = {}
    units = max(map(len, lengths.values()), default=1) or 1
    for name, known in lengths.items():
        split = [*known, *([[]] * (units - len(known)))]  # every unit has a shard of every split
        beside = tuple(other for other in lengths if other != TRAIN) if name == TRAIN else ()
        receipts = [
            _shard(store, name, number, docs, dtype, masks, eos, beside, rng) for number, docs in enumerate(split)
        ]
        loss_tokens = [receipt.loss_tokens for receipt in receipts if receipt.loss_tokens is not None]
        made[name] = Split(
            docs=sum(map(len, split)),
            tokens=sum(receipt.tokens for receipt in receipts),
            loss_tokens=sum(loss_tokens) if loss_tokens else None,
            shards=receipts,
        )
    old = read_manifest(LocalStorage(store))
    plan = read_record(LocalStorage(store), PLAN, Plan)
    (store / PLAN).write_bytes(encode(msgspec.structs.replace(plan, units=[[Slice(0)]] * units)))
    receipts = [receipt for split in made.values() for receipt in split.shards]
    files = {name: entry for name, entry in old.files.items() if not name.startswith(SHARDS)}
    files |= {PLAN: _entry(store / PLAN)} | {
        receipt.path("json"): _entry(store / receipt.path("json")) for receipt in receipts
    }
    counts = [sum((r.counts for r in receipts if r.unit == unit), Counts()) for unit in range(units)]
    manifest = msgspec.structs.replace(
        old,
        dtype=dtype,
        eos_id=EOS if eos else None,
        splits=made,
        units=counts,
        totals=sum(counts, Counts()),
        files=files,
    )
    write_manifest(LocalStorage(store), manifest)
    return store


def _shard(
    store: Path,
    split: str,
    number: int,
    docs: Sequence[int],
    dtype: str,
    masks: Masks,
    eos: bool,
    beside: tuple[str, ...],
    rng: np.random.Generator,
) -> Receipt:
    tokens = sum(docs)
    ids = rng.integers(0, EOS, tokens).astype(np.dtype(dtype).newbyteorder("<"))
    ends = np.array(list(accumulate(docs)), "<i8")
    if eos and tokens:
        ids[ends[np.diff(ends, prepend=0) > 0] - 1] = EOS
    arrays = {"bin": ids, "ends": ends, "pos": np.arange(len(docs), dtype="<i8")}
    if masks is True or (masks == "some" and number % 2):
        arrays["mask"] = rng.integers(0, 2, tokens).astype("u1")
    name = f"{split}-{number:05d}-000"
    for extension, array in arrays.items():
        array.tofile(store / SHARDS / f"{name}.{extension}")
    receipt = Receipt(
        split=split,
        unit=number,
        number=0,
        docs=len(docs),
        tokens=tokens,
        max_id=int(ids.max()) if tokens else -1,
        files={extension: _entry(store / SHARDS / f"{name}.{extension}") for extension in arrays},
        sources=[(0, len(docs))],
        counts=Counts(read=len(docs), written=len(docs)),
        rejects={},
        audited=0,
        next_input=None,
        next_position=None,
        beside=beside,
        loss_tokens=int(arrays["mask"].sum()) if "mask" in arrays else None,
    )
    (store / SHARDS / f"{name}.json").write_bytes(encode(receipt))
    return receipt


def _entry(path: Path) -> FileEntry:
    return FileEntry(path.stat().st_size, file_checksum(path))


def documents(store: tokpress.Store) -> list[list[int]]:
    return [doc.tolist() for doc in store]


def masks_of(store: tokpress.Store) -> list[list[int]]:
    """The loss of every document, token by token; 1 where nothing says otherwise."""
    found = []
    for number in range(len(store.shard_doc_ends)):
        shard = store.shard(number)
        mask = np.ones(len(shard.ids), "u1") if shard.mask is None else shard.mask
        found += [part.tolist() for part in np.split(mask, shard.ends)[:-1]]
    return found


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))
