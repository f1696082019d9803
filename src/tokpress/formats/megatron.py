"""Megatron-LM, NeMo, GPT-NeoX: raw ids (`.bin`) and an index (`.idx`).

In: shards. Out: `SPLIT.bin` and `SPLIT.idx`, or `SPLIT-00000.bin`, ... if there are several shards: links, but for small
shards, which are joined; and `SPLIT.txt`, which lists them for `--data-args-path`, each with its number of tokens as its
weight: prefixes without weights are gone through once, and a run that asks for more samples than that gets none. With
`merge`, one pair a split, copied. With `indices_for`, the indices that a run would make of each pair, in `cache/`.
A split without a token has no files: Megatron could not map them.

    .idx  "MMIDIDX\\0\\0" · u64 1 · u8 dtype · u64 sequences · u64 documents + 1 · i32 length[] · i64 byte offset[] ·
          i64 first sequence of each document[], and one more
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import InputError, StoreError
from tokpress.formats import megatron_indices
from tokpress.formats.base import Advance, Export, Format, Given, Part, TokenFile, Write, Written, shards_of
from tokpress.formats.megatron_indices import Pair, samples_of_pairs
from tokpress.formats.raw import count_ids, group_ends, group_tokens, joined_parts, shard_groups, token_paths, write_ids
from tokpress.formats.writing import PartWriter
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQQ")
# There is no code for u32. Ids are far below 2^31, so the bytes of an i32 are the same: a u32 file is called that.
_CODES = {2: 8, 4: 4}
_WIDTHS = {code: np.dtype(f"<u{width}") for width, code in _CODES.items()}
_LONGEST = 2**31 - 1  # lengths are i32


class MegatronFormat(Format):
    opened_with = "--data-args-path {out}/{split}.txt"
    in_directories = False
    can_merge = True

    def parts(self, export: Export) -> list[Part]:
        parts: list[Part] = []
        for split, store in export.splits.items():
            if not store.num_tokens:
                continue
            if export.options.merge:
                parts += joined_parts(export, store, f"{split}.bin")
                parts.append(Part(f"{split}.idx", store.num_docs * 12, _index_of_split(export, store, split)))
                continue
            for prefix, group in _groups(export, store).items():
                size = group_tokens(store, group) * store.dtype.itemsize
                parts.append(Part(prefix, size, _pair(export, store, group, prefix)))
        return parts + [
            part for store in export.splits.values() if store.num_tokens for part in _indices(export, store)
        ]

    def directories(self, export: Export) -> list[str]:
        return [megatron_indices.FOLDER] if export.options.indices else []

    def index(self, export: Export, written: dict[str, Written]) -> dict[str, bytes]:  # noqa: ARG002
        lists = {}
        for split, store in export.splits.items():
            if not store.num_tokens:
                continue
            groups = _groups(export, store)
            lines = [f"{group_tokens(store, group)} {export.final / prefix}\n" for prefix, group in groups.items()]
            lists[f"{split}.txt"] = os.fsencode("".join(lines))
        return lists

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:  # noqa: ARG002
        return [_read(file) for file in token_paths(paths, ".bin", beside=".idx")]


def _groups(export: Export, store: Store) -> dict[str, range]:
    """The pairs of a split: their names, and the shards in each."""
    everything = [range(len(shards_of(store)))]
    groups = everything if export.options.merge else shard_groups(store)
    split = store.split_name
    return {split if len(groups) == 1 else f"{split}-{number:05d}": group for number, group in enumerate(groups)}


def _indices(export: Export, store: Store) -> list[Part]:
    """What Megatron would make of each pair before it trains."""
    asked = export.options.indices
    if not asked:
        return []
    groups = _groups(export, store)
    tokens = [group_tokens(store, group) for group in groups.values()]
    samples = samples_of_pairs(tokens, asked.samples.get(store.split_name))
    return [
        Part(f"{prefix}.{seq_len}.indices", 12 * size // seq_len, _indices_of(export, store, group, pair))
        for (prefix, group), size, wanted in zip(groups.items(), tokens, samples, strict=True)
        for seq_len in asked.seq_lens
        for pair in [Pair(str(export.final / prefix), store.split_name, wanted, seq_len, asked)]
    ]


def _indices_of(export: Export, store: Store, group: range, pair: Pair) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        for name, blocks in pair.files(np.diff(group_ends(store, group), prepend=0)).items():
            part.write(name, blocks)
        return part.receipt()

    return write


def _pair(export: Export, store: Store, group: range, prefix: str) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        write_ids(part, store, group, f"{prefix}.bin")
        part.write(f"{prefix}.idx", _index(np.diff(group_ends(store, group), prepend=0), store))
        return part.receipt()

    return write


def _index_of_split(export: Export, store: Store, split: str) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        part.write(f"{split}.idx", _index(store.doc_lengths(), store))
        return part.receipt()

    return write


def _index(lengths: Int64s, store: Store) -> Iterator[Any]:
    if len(lengths) and int(lengths.max()) > _LONGEST:
        raise StoreError(
            f"{store.url} has a document of {int(lengths.max()):,} tokens; Megatron's index counts up to {_LONGEST:,}. "
            "Choose a format without that limit: --to datatrove, dolma, parquet."
        )
    docs, width = len(lengths), store.dtype.itemsize
    yield _HEADER.pack(_MAGIC, 1, _CODES[width], docs, docs + 1)
    yield lengths.astype("<i4")
    yield ((np.cumsum(lengths) - lengths) * width).astype("<i8")
    yield np.arange(docs + 1, dtype="<i8")


def _read(path: Path) -> TokenFile:
    index = path.with_suffix(".idx")
    data = np.memmap(index, np.uint8, "r") if index.stat().st_size else np.empty(0, np.uint8)
    if len(data) < _HEADER.size:
        raise InputError(f"{index} is no Megatron index: it has {len(data)} bytes. Is it whole?")
    magic, version, code, sequences, documents = _HEADER.unpack(data[: _HEADER.size].tobytes())
    if magic != _MAGIC or version != 1:
        raise InputError(f"{index} is no Megatron index of version 1. Was it written by Megatron's own tools?")
    if code not in _WIDTHS:
        raise InputError(f"{index} says that ids are of type {code}; only 8 (u16) and 4 (i32) can be adopted.")
    dtype = _WIDTHS[code]
    if len(data) < _HEADER.size + 12 * sequences + 8 * documents or not documents:
        raise InputError(f"{index} is cut off: it should list {sequences:,} sequences. Copy it again.")
    if rest := len(data) - _HEADER.size - 12 * sequences - 8 * documents:
        raise InputError(f"{index} has {rest:,} bytes behind its end: it is not what was written. Copy it again.")
    after_lengths = _HEADER.size + 4 * sequences
    after_pointers = after_lengths + 8 * sequences
    lengths = np.frombuffer(data[_HEADER.size : after_lengths], "<i4").astype(np.int64)
    pointers = np.frombuffer(data[after_lengths:after_pointers], "<i8")
    bounds = np.frombuffer(data[after_pointers : after_pointers + 8 * documents], "<i8")
    ends = np.concatenate(([0], np.cumsum(lengths)))
    tokens = count_ids(path, dtype)
    if (lengths < 0).any() or not np.array_equal(pointers, ends[:-1] * dtype.itemsize) or ends[-1] != tokens:
        raise InputError(
            f"{index} does not say that its sequences follow each other through all of {path}. Rebuild it."
        )
    if bounds[0] != 0 or bounds[-1] != sequences or (bounds[1:] < bounds[:-1]).any():
        raise InputError(f"{index} is damaged: its documents do not cover its sequences. Copy it again.")
    # A document may be several sequences (sentences): it ends where its last one does.
    return TokenFile(path=path, dtype=dtype, tokens=tokens, ends=ends[bounds[1:]])
