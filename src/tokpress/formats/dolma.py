"""dolma, OLMo-core: raw ids without any header (`.npy` by name alone) and a table of documents (`.csv.gz`).

In: shards. Out: `SPLIT/part-0-00000.npy`, a link; `part-0-00000.csv.gz` with `start,end,id,src,loc` for each document (id is
its number in the split, src and loc where it came from); `labels_mask_part-0-00000.npy`, a link, where there are masks.
With `seq_len` the ids are rows of that length, of any packing, and the mask says what is padding: OLMo-core then reads a row
as an instance and looks for no documents, which it finds by EOS, wherever that stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from isal import isal_zlib

from tokpress.batches import Int64s
from tokpress.errors import InputError
from tokpress.formats.base import Advance, Export, Format, Given, Part, TokenFile, Write, Written, has_mask
from tokpress.formats.raw import count_ids, group_tokens, shard_groups, token_paths, write_ids, write_mask
from tokpress.formats.rows import Sequences
from tokpress.formats.writing import PartWriter
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_COLUMNS = ("start", "end", "id", "src", "loc")
_MASK = "labels_mask_"
_BLOCK_DOCS = 2**16


class DolmaFormat(Format):
    opened_with = "paths: {out}/{split}/part-*.npy"
    holds_masks = True
    seq_len = "may"

    def parts(self, export: Export) -> list[Part]:
        if export.options.seq_len is not None:
            return [part for store in export.splits.values() for part in _row_parts(export, store)]
        return [
            Part(f"{split}-{number:05d}", size, _files(export, store, number, group, masked))
            for split, store in export.splits.items()
            if store.num_tokens
            for masked in [has_mask(store)]
            for number, group in enumerate(shard_groups(store))
            for size in [group_tokens(store, group) * store.dtype.itemsize]
        ]

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:
        found = [file for file in token_paths(paths, ".npy") if not file.name.startswith(_MASK)]
        return [_read(file, given.dtype) for file in found]


def _files(export: Export, store: Store, number: int, group: range, masked: bool) -> Write:
    folder, name = store.split_name, f"part-0-{number:05d}"

    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        if masked:
            write_mask(part, store, group, f"{folder}/{_MASK}{name}.npy")
        part.write(f"{folder}/{name}.csv.gz", _table(store, group))
        write_ids(part, store, group, f"{folder}/{name}.npy")
        return part.receipt()

    return write


def _row_parts(export: Export, store: Store) -> list[Part]:
    sequences = Sequences(store, export.options)
    return [
        Part(
            f"{store.split_name}-{number:05d}",
            len(rows) * sequences.row_bytes,
            _rows(export, store, number, sequences, rows),
        )
        for number, rows in enumerate(sequences.ranges())
    ]


def _rows(export: Export, store: Store, number: int, sequences: Sequences, rows: range) -> Write:
    folder, name = store.split_name, f"part-0-{number:05d}.npy"

    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        with ExitStack() as stack:
            ids = stack.enter_context(part.open(f"{folder}/{name}"))
            mask = stack.enter_context(part.open(f"{folder}/{_MASK}{name}")) if sequences.masked else None
            for block in sequences.blocks(rows):
                arrays = sequences.gather(block)
                ids.write(arrays["input_ids"])
                if mask is not None:
                    mask.write(arrays["loss_mask"].astype(np.uint8))
                advance(len(block) * sequences.row_bytes)
        return part.receipt(split=store.split_name, rows=len(rows))

    return write


def _table(store: Store, group: range) -> Iterator[bytes]:
    compressor = isal_zlib.compressobj(wbits=31)  # gzip, without a time in its header
    firsts = [int(store.shard_token_ends[number]) - store.shard(number).receipt.tokens for number in group]
    tables = (_documents(store, number, first - firsts[0]) for number, first in zip(group, firsts, strict=True))
    for rows in chain.from_iterable(tables):
        lines = pa.BufferOutputStream()
        csv.write_csv(rows, lines, csv.WriteOptions(include_header=False, quoting_style="needed"))
        yield compressor.compress(lines.getvalue())
    yield compressor.flush()


def _documents(store: Store, number: int, before: int) -> Iterator[pa.Table]:
    """Those of a shard, before which so many tokens stand in the file."""
    shard = store.shard(number)
    first_doc = int(store.shard_doc_ends[number]) - shard.receipt.docs
    runs = shard.receipt.sources
    run_of_doc = np.repeat(np.arange(len(runs)), [docs for _, docs in runs])
    paths = pa.array([store.plan.inputs[source].path for source, _ in runs], pa.string())
    for first in range(0, shard.receipt.docs, _BLOCK_DOCS):
        docs = slice(first, min(first + _BLOCK_DOCS, shard.receipt.docs))
        ends = np.asarray(shard.ends[docs])
        starts = np.concatenate(([shard.ends[first - 1] if first else 0], ends[:-1]))
        numbers = np.arange(first_doc + docs.start, first_doc + docs.stop)
        columns = [
            starts + before,
            ends + before,
            numbers,
            paths.take(pa.array(run_of_doc[docs])),
            np.asarray(shard.positions[docs]),
        ]
        yield pa.table([pa.array(column) for column in columns], names=_COLUMNS)


def _read(path: Path, dtype: np.dtype[Any]) -> TokenFile:
    table = path.with_name(path.name.removesuffix(".npy") + ".csv.gz")
    if not table.is_file():
        raise InputError(f"{path} has no {table.name} beside it, which says where its documents end. Write it again.")
    tokens = count_ids(path, dtype)
    ends = _ends(table)
    if (int(ends[-1]) if len(ends) else 0) != tokens:
        raise InputError(
            f"{table} does not fit {path}: its documents end at token {int(ends[-1]) if len(ends) else 0:,}, the file at "
            f"{tokens:,} (ids of {dtype.itemsize} bytes). Is it the right --tokenizer, or --dtype?"
        )
    mask = path.with_name(_MASK + path.name)
    return TokenFile(path=path, dtype=dtype, tokens=tokens, ends=ends, mask=mask if mask.is_file() else None)


def _ends(table: Path) -> Int64s:
    try:
        with pa.CompressedInputStream(pa.OSFile(str(table)), "gzip") as stream:
            data = stream.read()
    except OSError as error:
        raise InputError(f"{table} cannot be unpacked: {error}. Copy it again.") from error
    if not data:
        return np.empty(0, np.int64)
    try:
        rows = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=list(_COLUMNS)),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(include_columns=["start", "end"], column_types={"start": pa.int64(), "end": pa.int64()}),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"{table} is no table of start,end,id,src,loc: {error}.") from error
    starts, ends = (rows[name].to_numpy() for name in ("start", "end"))
    if not np.array_equal(starts, np.concatenate(([0], ends[:-1]))) or (ends < starts).any():
        raise InputError(
            f"{table} lists documents that do not follow each other. Only whole token files can be adopted."
        )
    found: Int64s = ends.astype(np.int64)
    return found
