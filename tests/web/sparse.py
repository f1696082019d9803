"""A store of 10^10 tokens and 10^8 documents that takes no room: the shards share three files, whose tokens are a hole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import tokpress
from tokpress.records import Counts, FileEntry, Manifest, Plan, Receipt, Split
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_record, write_manifest

DOCS = 10**6  # of a shard
TOKENS = 10**8


def make(directory: Path, shards: int = 100) -> Path:
    """Documents of 1 to 199 tokens; the tokens at the beginning of each shard are text, the rest zeros."""
    text = "A sparse store, and a few words of real text in it. " * 2_000
    source = directory.parent / "sparse.jsonl"
    source.write_text('{"text": "' + text + '"}\n')
    built = tokpress.build(source, tokenizer="bytes", out=directory)
    ids = built.doc(0).astype("<u2")
    manifest = built.manifest
    plan = read_record(LocalStorage(directory), "plan.json", Plan)
    assert plan.inputs
    lengths = np.tile(np.concatenate((np.arange(1, 200), [100])), DOCS // 200)
    first = directory / "shards" / "train-00000-000"
    with first.with_suffix(".bin").open("wb") as file:
        ids.tofile(file)
        file.truncate(2 * TOKENS)
    np.cumsum(lengths).astype("<i8").tofile(first.with_suffix(".ends"))
    np.arange(DOCS, dtype="<i8").tofile(first.with_suffix(".pos"))
    for unit in range(1, shards):
        for extension in ("bin", "ends", "pos"):
            os.link(first.with_suffix(f".{extension}"), directory / "shards" / f"train-{unit:05d}-000.{extension}")
    receipts = [_receipt(unit, int(lengths.sum())) for unit in range(shards)]
    counts = Counts(read=DOCS * shards, written=DOCS * shards)
    changed = {
        "dtype": "uint16",
        "splits": {"train": Split(docs=DOCS * shards, tokens=TOKENS * shards, shards=receipts)},
        "totals": counts,
        "units": [receipt.counts for receipt in receipts],
    }
    known = {name: getattr(manifest, name) for name in manifest.__struct_fields__} | changed
    write_manifest(LocalStorage(directory), Manifest(**known))
    return directory


def _receipt(unit: int, tokens: int) -> Receipt:
    assert tokens == TOKENS
    sizes = {"bin": 2 * TOKENS, "ends": 8 * DOCS, "pos": 8 * DOCS}
    return Receipt(
        split="train",
        unit=unit,
        number=0,
        docs=DOCS,
        tokens=TOKENS,
        max_id=256,
        files={extension: FileEntry(size, "0" * 16) for extension, size in sizes.items()},
        sources=[(0, DOCS)],
        counts=Counts(read=DOCS, written=DOCS),
        rejects={},
        audited=0,
        next_input=None,
        next_position=None,
    )
