"""The columns of a table of tokens, by the names that trainers have for them.

In: rows, laid end to end: ids, where there is loss, where documents stand. Out: a record batch of lists. Nothing is done for
each row or token in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.batches import Int64s
from tokpress.loader.memory.buffers import Array
from tokpress.loader.memory.ranges import Segments

IGNORED = -100  # a label without loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    bounds: Int64s  # where each row starts, and the end of the last
    ids: Array
    loss: npt.NDArray[np.uint8] | None  # 1 where a token counts; None: everywhere
    segments: Segments | None = None  # of sequences: which part of which document stands where

    @property
    def counts(self) -> npt.NDArray[np.uint8]:
        return np.ones(len(self.ids), np.uint8) if self.loss is None else self.loss

    @property
    def starts(self) -> Int64s:
        """Of segments, in the rows end to end."""
        assert self.segments is not None
        starts: Int64s = self.bounds[self.segments.rows] + self.segments.columns
        return starts


def _labels(rows: Rows) -> Any:
    labels = rows.ids.astype(np.int32)
    if rows.loss is not None:
        labels[rows.loss == 0] = IGNORED
    return rows.bounds, labels


def _attention_mask(rows: Rows) -> Any:
    """0 in padding."""
    if rows.segments is None:
        return rows.bounds, np.ones(len(rows.ids), np.int8)
    change = np.zeros(len(rows.ids) + 1, np.int8)
    np.add.at(change, rows.starts, 1)
    np.subtract.at(change, rows.starts + rows.segments.lengths, 1)
    return rows.bounds, np.cumsum(change[:-1], dtype=np.int8)


def _loss_weights(rows: Rows) -> Any:
    """Of the token that predicts: a row's last one predicts nothing, nor does a document's last one the next document."""
    weights = np.zeros(len(rows.ids), np.float32)
    weights[:-1] = rows.counts[1:]
    starts = rows.bounds[:-1] if rows.segments is None else rows.starts
    weights[starts[starts > 0] - 1] = 0
    weights[rows.bounds[1:][rows.bounds[1:] > 0] - 1] = 0
    return rows.bounds, weights


def _doc_ends(rows: Rows) -> Any:
    assert rows.segments is not None
    counts = np.bincount(rows.segments.rows, minlength=len(rows.bounds) - 1)
    ends = (rows.segments.columns + rows.segments.lengths).astype(np.int32)
    return np.concatenate(([0], np.cumsum(counts))), ends


def _seq_lengths(rows: Rows) -> Any:
    """Of the documents in a row, and of its padding: they add up to it."""
    assert rows.segments is not None
    stops = rows.starts + rows.segments.lengths
    bounds = np.unique(np.concatenate((rows.bounds, rows.starts, stops)))
    first = np.searchsorted(bounds, rows.bounds)
    return first, np.diff(bounds).astype(np.int32)


_COLUMNS: dict[str, tuple[Any, Callable[[Rows], Any]]] = {
    "input_ids": (None, lambda rows: (rows.bounds, rows.ids)),
    "loss_mask": (pa.uint8(), lambda rows: (rows.bounds, rows.counts)),
    "assistant_masks": (pa.uint8(), lambda rows: (rows.bounds, rows.counts)),
    "attention_mask": (pa.int8(), _attention_mask),
    "labels": (pa.int32(), _labels),
    "loss_weights": (pa.float32(), _loss_weights),
    "doc_ends": (pa.int32(), _doc_ends),
    "seq_lengths": (pa.int32(), _seq_lengths),
}


def schema(names: Iterable[str], ids: pa.DataType) -> pa.Schema:
    return pa.schema([(name, pa.list_(_COLUMNS[name][0] or ids)) for name in names])


def record_batch(wanted: pa.Schema, rows: Rows) -> pa.RecordBatch:
    """Arrow casts what is of another type than the schema's."""
    lists = []
    for field in wanted:
        bounds, values = _COLUMNS[field.name][1](rows)
        lists.append(pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), pa.array(values)))
    return pa.record_batch(lists, schema=wanted)
