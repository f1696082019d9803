"""Rows as Arrow tables, for Parquet and Arrow files.

In: a split. Out: record batches with `input_ids`; `loss_mask` (u8) where something is masked or padded; for sequences
`doc_ends`, where the documents in a row end. Ids are not copied for documents: a list is an offset into the mapped shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s
from tokpress.errors import StoreError
from tokpress.formats.base import Export, has_mask
from tokpress.formats.rows import DocRun, Sequences, doc_runs
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
    ids = pa.list_(pa.from_numpy_dtype(store.dtype))
    columns = [("input_ids", ids)]
    if export.options.seq_len is None:
        columns += [("loss_mask", pa.list_(pa.uint8()))] if has_mask(store) else []
    else:
        columns += [("loss_mask", pa.list_(pa.uint8()))] if Sequences(store, export.options).masked else []
        columns.append(("doc_ends", pa.list_(pa.int32())))
    return pa.schema(columns)


def table_files(export: Export, store: Store, file_bytes: int) -> list[TableFile]:
    """The files of a split; one without rows if it has none."""
    schema = _schema(export, store)
    if export.options.seq_len is None:
        runs = doc_runs(store, shard_tokens=file_bytes // store.dtype.itemsize)
        files = [
            TableFile(schema, run.last - run.first, run.tokens * store.dtype.itemsize, _documents(store, run, schema))
            for run in runs
        ]
    else:
        sequences = Sequences(store, export.options)
        files = [
            TableFile(schema, len(rows), len(rows) * sequences.row_bytes, _sequences(sequences, rows, schema))
            for rows in sequences.ranges(file_bytes)
        ]
    return files or [TableFile(schema, 0, 0, lambda batch_bytes: iter(()))]  # noqa: ARG005


def _documents(store: Store, run: DocRun, schema: pa.Schema) -> Any:
    def batches(batch_bytes: int) -> Iterator[pa.RecordBatch]:
        shard = store.shard(run.shard)
        for piece in run.cut(shard.ends, batch_bytes // store.dtype.itemsize):
            if piece.tokens > _LONGEST:
                raise StoreError(
                    f"{store.url} has a document of {piece.tokens:,} tokens; a list has up to {_LONGEST:,}. "
                    "Choose --seq-len, or a format without that limit: --to datatrove, dolma."
                )
            ends = np.concatenate(([piece.start], shard.ends[piece.first : piece.last])) - piece.start
            columns = [_lists(ends, shard.ids[piece.start : piece.stop])]
            if "loss_mask" in schema.names:
                ones = np.ones(piece.tokens, np.uint8)
                columns.append(_lists(ends, ones if shard.mask is None else shard.mask[piece.start : piece.stop]))
            yield pa.record_batch(columns, schema=schema)

    return batches


def _sequences(sequences: Sequences, rows: range, schema: pa.Schema) -> Any:
    def batches(batch_bytes: int) -> Iterator[pa.RecordBatch]:
        for block in sequences.blocks(rows, batch_bytes):
            arrays = sequences.gather(block)
            bounds = np.arange(len(block) + 1, dtype=np.int64) * sequences.data.seq_len
            columns = [_lists(bounds, arrays["input_ids"].reshape(-1))]
            if "loss_mask" in schema.names:
                columns.append(_lists(bounds, arrays["loss_mask"].view(np.uint8).reshape(-1)))
            segments = sequences.segments(block)
            counts = np.bincount(segments.rows, minlength=len(block))
            ends = (segments.columns + segments.lengths).astype(np.int32)
            columns.append(_lists(np.concatenate(([0], np.cumsum(counts))), ends))
            yield pa.record_batch(columns, schema=schema)

    return batches


def _lists(bounds: Int64s, values: Any) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), pa.array(values))
