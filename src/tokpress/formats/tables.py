"""Rows as Arrow tables, for Parquet and Arrow files.

In: a split. Out: record batches with `input_ids`; `loss_mask`, `attention_mask` and `labels` where something is masked or
padded; for sequences `doc_ends`, where the documents in a row end; with --for, what that trainer reads. Ids are not copied
for documents: a list is an offset into the mapped shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokpress.errors import StoreError, UsageError
from tokpress.formats import columns
from tokpress.formats.base import Export, has_mask, shards_of
from tokpress.formats.rows import DocRun, Sequences, doc_runs
from tokpress.formats.trainers import find_trainer
from tokpress.records import KEPT
from tokpress.store.kept import read_kept_rows
from tokpress.store.reader import Store

_LONGEST = 2**31 - 1  # a list counts in i32


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of rows: how many, about how many bytes, and the rows themselves, so many bytes of ids at a time."""

    schema: pa.Schema
    rows: int
    bytes: int
    batches: Callable[[int], Iterator[pa.RecordBatch]]


def _schema(export: Export, store: Store) -> pa.Schema:
    """With --for, the trainer's columns. Else ids and, where anything is masked or padded, all that trainers call a mask."""
    options = export.options
    if options.trainer:
        return columns.schema(find_trainer(options.trainer).columns_for(options.seq_len), pa.int32())
    masked = has_mask(store) if options.seq_len is None else Sequences(store, options).masked
    names = ["input_ids", *(["loss_mask", "attention_mask", "labels"] if masked else [])]
    return columns.schema([*names, *(["doc_ends"] if options.seq_len else [])], pa.from_numpy_dtype(store.dtype))


def _kept_schema(export: Export, store: Store) -> pa.Schema:
    """The fields that are written beside the ids, as the build kept them: text."""
    if not export.options.keep:
        return pa.schema([])
    kept = [receipt for receipt in shards_of(store) if KEPT in receipt.files]
    return read_kept_rows(store.storage, kept[0].path(KEPT), 0, 0).schema if kept else pa.schema([])


def table_files(export: Export, store: Store, file_bytes: int) -> list[TableFile]:
    """The files of a split; one without rows if it has none."""
    schema, kept = _schema(export, store), _kept_schema(export, store)
    if twice := set(schema.names) & set(kept.names):
        raise UsageError(
            f"--keep: the store keeps a field {min(twice)!r}, which is a column of the export. Leave it out."
        )
    if export.options.seq_len is None:
        whole = pa.schema([*schema, *kept])
        runs = doc_runs(store, shard_tokens=file_bytes // store.dtype.itemsize)
        files = [
            TableFile(
                whole, run.last - run.first, run.tokens * store.dtype.itemsize, _documents(store, run, schema, kept)
            )
            for run in runs
        ]
    else:
        sequences = Sequences(store, export.options)
        files = [
            TableFile(schema, len(rows), len(rows) * sequences.row_bytes, _sequences(sequences, rows, schema))
            for rows in sequences.ranges(file_bytes)
        ]
    return files or [TableFile(pa.schema([*schema, *kept]), 0, 0, lambda batch_bytes: iter(()))]  # noqa: ARG005


def _documents(store: Store, run: DocRun, schema: pa.Schema, kept: pa.Schema) -> Any:
    def batches(batch_bytes: int) -> Iterator[pa.RecordBatch]:
        shard = store.shard(run.shard)
        for piece in run.cut(shard.ends, batch_bytes // store.dtype.itemsize):
            if piece.tokens > _LONGEST:
                raise StoreError(
                    f"{store.url} has a document of {piece.tokens:,} tokens; a list has up to {_LONGEST:,}. "
                    "Choose --seq-len, or a format without that limit: --to datatrove, dolma."
                )
            bounds = np.concatenate(([piece.start], shard.ends[piece.first : piece.last])) - piece.start
            loss = None if shard.mask is None else shard.mask[piece.start : piece.stop]
            rows = columns.Rows(bounds=bounds, ids=shard.ids[piece.start : piece.stop], loss=loss)
            made = columns.record_batch(schema, rows)
            if kept.names:
                key = shards_of(store)[run.shard].path(KEPT)
                fields = read_kept_rows(store.storage, key, piece.first, piece.last).combine_chunks()
                lists = [*made.columns, *(column.combine_chunks() for column in fields.columns)]
                made = pa.record_batch(lists, schema=pa.schema([*schema, *kept]))
            yield made

    return batches


def _sequences(sequences: Sequences, rows: range, schema: pa.Schema) -> Any:
    def batches(batch_bytes: int) -> Iterator[pa.RecordBatch]:
        for block in sequences.blocks(rows, batch_bytes):
            arrays = sequences.gather(block)
            loss = arrays["loss_mask"].view(np.uint8).reshape(-1) if sequences.masked else None
            made = columns.Rows(
                bounds=np.arange(len(block) + 1, dtype=np.int64) * sequences.data.seq_len,
                ids=arrays["input_ids"].reshape(-1),
                loss=loss,
                segments=sequences.segments(block),
            )
            yield columns.record_batch(schema, made)

    return batches
