"""Stores of any documents in any shards, written at once, and packings in slow, obvious form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
from conftest import file_checksum
from hypothesis import strategies as st

import tokpress
from tokpress.packing.base import Packing, Pieces
from tokpress.records import SHARDS, FileEntry, Receipt, Split
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest, write_manifest

# Lengths of documents, shard by shard: empty documents, empty shards, documents longer than a sequence.
shards_of_lengths = st.lists(st.lists(st.integers(0, 12) | st.integers(0, 60), max_size=12), max_size=5)
seq_lens = st.integers(1, 24)


def template(directory: Path) -> Path:
    """A store of the `bytes` tokenizer, to be furnished with other tokens."""
    directory.mkdir(parents=True)
    (directory / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    return tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "store").path


def write_shards(store: Path, lengths: Sequence[Sequence[int]], split: str = "train") -> tokpress.Store:
    """Documents of these lengths; their tokens count up, so that any two neighbours can be told apart."""
    receipts = []
    first = 0
    for number, shard in enumerate(lengths):
        name = f"{split}-00000-{number:03d}"
        tokens = sum(shard)
        arrays = {
            "bin": (np.arange(first, first + tokens) % 251).astype("<u2"),
            "ends": np.array(list(accumulate(shard)), "<i8"),
            "pos": np.arange(len(shard), dtype="<i8"),
        }
        for extension, array in arrays.items():
            array.tofile(store / SHARDS / f"{name}.{extension}")
        files = {extension: _entry(store / SHARDS / f"{name}.{extension}") for extension in arrays}
        receipts.append(_receipt(split, number, len(shard), tokens, files, last=number == len(lengths) - 1))
        first += tokens
    docs = sum(map(len, lengths))
    manifest = read_manifest(LocalStorage(store))
    splits = manifest.splits | {split: Split(docs=docs, tokens=first, shards=receipts)}
    write_manifest(LocalStorage(store), msgspec.structs.replace(manifest, splits=splits))
    return tokpress.open(store, split)


def _entry(path: Path) -> FileEntry:
    return FileEntry(path.stat().st_size, file_checksum(path))


def _receipt(split: str, number: int, docs: int, tokens: int, files: dict[str, FileEntry], *, last: bool) -> Receipt:
    from tokpress.records import Counts

    return Receipt(
        split=split,
        unit=0,
        number=number,
        docs=docs,
        tokens=tokens,
        max_id=250,
        files=files,
        sources=[(0, docs)],
        counts=Counts(read=docs, written=docs),
        rejects={},
        audited=0,
        next_input=None if last else 0,
        next_position=None if last else number,
    )


def doc_spans(store: tokpress.Store) -> list[tuple[int, int]]:
    """Where every document starts and stops in the stream."""
    ends = list(accumulate(store.doc_lengths().tolist()))
    return list(zip([0, *ends], ends, strict=False))


def all_pieces(packing: Packing) -> Pieces:
    return packing.pieces(np.arange(len(packing)))


def rows_of(packing: Packing, pieces: Pieces | None = None, count: int | None = None) -> list[list[int | None]]:
    """Every sequence as places in the stream, None for padding; checks what the contract says of pieces."""
    pieces = all_pieces(packing) if pieces is None else pieces
    rows: list[list[int | None]] = [[None] * packing.seq_len for _ in range(len(packing) if count is None else count)]
    arrays = (pieces.rows, pieces.columns, pieces.starts, pieces.stops)
    assert all(array.dtype == np.int64 for array in arrays)
    in_order = list(zip(pieces.rows.tolist(), pieces.columns.tolist(), strict=True))
    assert in_order == sorted(in_order)
    for row, column, start, stop in zip(*(array.tolist() for array in arrays), strict=True):
        assert start < stop
        assert column >= 0
        assert column + stop - start <= packing.seq_len
        for place in range(start, stop):
            assert rows[row][column] is None  # disjoint
            rows[row][column] = place
            column += 1
    return rows


def tokens_of(rows: list[list[int | None]]) -> list[int]:
    """Every place in the stream that stands in a row, as often as it does, in order."""
    return sorted(place for row in rows for place in row if place is not None)
