"""A store of as many shards as one likes, none of which takes room: holes in files that many names share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokpress.records import (
    Audit,
    Counts,
    FileEntry,
    Manifest,
    Parity,
    Receipt,
    RunFacts,
    Split,
    TokenizerInfo,
)
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import write_manifest

DOCS = 10**5  # of a shard, all of the same length
TOKENS = 10**8
_NO_CHECKSUM = "0" * 16
_TOKENIZER = TokenizerInfo(kind="bytes", fingerprint="0" * 64, vocab_size=70_000, special_tokens={})


class SparseStorage(LocalStorage):
    """All shards have the same three files: to make 300,000 of them would take longer than what is tested."""

    def local(self, key: str) -> Path:
        directory, _, name = key.rpartition("/")
        return super().local(f"any.{name.rpartition('.')[2]}" if directory == "shards" else key)


def make(directory: Path, shards: int) -> SparseStorage:
    """10^8 zeros a shard; document i of each ends where the (i + 1)-th thousand does."""
    directory.mkdir(parents=True)
    with (directory / "any.bin").open("wb") as file:
        file.truncate(4 * TOKENS)
    np.arange(TOKENS // DOCS, TOKENS + 1, TOKENS // DOCS, dtype="<i8").tofile(directory / "any.ends")
    np.arange(DOCS, dtype="<i8").tofile(directory / "any.pos")
    storage = SparseStorage(directory)
    write_manifest(storage, _manifest([_receipt(unit) for unit in range(shards)]))
    return storage


def _receipt(unit: int) -> Receipt:
    sizes = {"bin": 4 * TOKENS, "ends": 8 * DOCS, "pos": 8 * DOCS}
    return Receipt(
        split="train",
        unit=unit,
        number=0,
        docs=DOCS,
        tokens=TOKENS,
        max_id=0,
        files={extension: FileEntry(size, _NO_CHECKSUM) for extension, size in sizes.items()},
        sources=[(0, DOCS)],
        counts=Counts(read=DOCS, written=DOCS),
        rejects={},
        audited=0,
        next_input=None,
        next_position=None,
    )


def _manifest(receipts: list[Receipt]) -> Manifest:
    docs = DOCS * len(receipts)
    return Manifest(
        tokenizer=_TOKENIZER,
        dtype="uint32",
        bos_id=None,
        eos_id=None,
        special_tokens="text",
        splits={"train": Split(docs=docs, tokens=TOKENS * len(receipts), shards=receipts)},
        units=[receipt.counts for receipt in receipts],
        totals=Counts(read=docs, written=docs),
        rejects={},
        parity=Parity(outcome="not-needed", engine="bytes", reference="bytes"),
        audit=Audit(rate=0.0, docs=0),
        files={receipt.path("json"): FileEntry(700, _NO_CHECKSUM) for receipt in receipts},
        run=RunFacts(seconds=1.0),
    )
