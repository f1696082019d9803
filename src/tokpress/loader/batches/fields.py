"""Ids and document bounds -> what a model takes.

In: a block of ids (a row a sequence), which of them are real, where documents stand. Out: `input_ids`, `labels`,
`position_ids`, `cu_seqlens`, `doc_ids`, `loss_mask`. All by whole arrays: nothing here is done for each document or token
in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.errors import UsageError
from tokpress.loader.memory.buffers import Allocate, Array
from tokpress.loader.memory.ranges import Segments

FIELDS = ("input_ids", "labels", "position_ids", "cu_seqlens", "doc_ids", "loss_mask")
_TOKEN_BYTES = {"position_ids": 8, "cu_seqlens": 4, "doc_ids": 8, "loss_mask": 1}  # at most; the others hold ids


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which fields, and how they are to be."""

    seq_len: int
    fields: tuple[str, ...]
    shift_labels: bool  # by the loader: labels[t] = ids[t + 1]; else labels = ids, and the model shifts
    mask_across_docs: bool  # no loss where a document's first token would be predicted from the document before
    pad_id: int
    ignore_index: int
    max_docs: int  # in a row; cu_seqlens has room for as many, its padding counted as one
    dtype: np.dtype[Any]  # of input_ids and labels

    @cached_property
    def token_bytes(self) -> int:
        """What a token takes in all fields together."""
        return sum(_TOKEN_BYTES.get(name, self.dtype.itemsize) for name in self.fields)

    @cached_property
    def needs_segments(self) -> bool:
        bounds = {"position_ids", "cu_seqlens", "doc_ids"}
        return bool(bounds & set(self.fields)) or (self.mask_across_docs and self.needs_loss)

    @cached_property
    def needs_loss(self) -> bool:
        return "labels" in self.fields or "loss_mask" in self.fields


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as they were read: seq_len wide, or one wider where the loader shifts labels and the next token is known."""

    ids: Array  # of the layout's dtype, if they are as wide as its rows
    real: npt.NDArray[np.bool_] | None  # None: there is no padding
    mask: npt.NDArray[np.uint8] | None  # None: loss everywhere
    segments: Segments | None  # if the layout needs them


def make_fields(layout: Layout, block: Block, allocate: Allocate, *, batches: int = 1) -> dict[str, Array]:
    """The fields that the layout asks for, in its order. Of `cu_seqlens` there is a row for each of so many batches."""
    rows = len(block.ids)
    shape = (rows, layout.seq_len)
    out: dict[str, Array] = {}
    loss = _loss(layout, block) if layout.needs_loss else None
    for name in layout.fields:
        if name == "input_ids" and block.ids.shape == shape:
            out[name] = block.ids
        elif name == "input_ids":
            out[name] = allocate(name, shape, layout.dtype)
            out[name][...] = block.ids[:, : layout.seq_len]
        elif name == "labels":
            out[name] = allocate(name, shape, layout.dtype)
            _fill_labels(layout, block, loss, out[name])
        elif name == "loss_mask":
            out[name] = allocate(name, shape, np.dtype(np.bool_))
            out[name][...] = True if loss is None else loss
    if layout.needs_segments and block.segments is not None:
        segments = _flat_segments(layout, rows, block.segments)
        for name in layout.fields:
            if name in ("position_ids", "doc_ids"):
                out[name] = allocate(name, shape, np.dtype(np.int64))
                (_fill_positions if name == "position_ids" else _fill_docs)(segments, out[name])
            elif name == "cu_seqlens":
                out[name] = allocate(name, (batches, rows // batches * layout.max_docs + 1), np.dtype(np.int32))
                for batch in range(batches):
                    _fill_bounds(layout, segments, batch * (rows // batches), rows // batches, out[name][batch])
    return {name: out[name] for name in layout.fields}


def _loss(layout: Layout, block: Block) -> npt.NDArray[np.bool_] | None:
    """Where labels count; None: everywhere. A stored mask belongs to the token that is predicted."""
    rows, width = block.ids.shape
    shift = int(layout.shift_labels)
    across = layout.mask_across_docs
    if block.real is None and block.mask is None and not across and width == layout.seq_len + shift:
        return None
    counts = np.ones((rows, width), np.bool_) if block.mask is None else block.mask != 0
    if block.real is not None:
        counts &= block.real
    if across and block.segments is not None:
        begins = block.segments.columns > 0
        counts[block.segments.rows[begins], block.segments.columns[begins]] = False
    if not shift:
        return counts
    loss = np.zeros((rows, layout.seq_len), np.bool_)
    loss[:, : width - 1] = counts[:, 1:]
    if block.real is not None:  # nothing is predicted from padding
        loss &= block.real[:, : layout.seq_len]
    return loss


def _fill_labels(layout: Layout, block: Block, loss: npt.NDArray[np.bool_] | None, labels: Array) -> None:
    if layout.shift_labels:
        known = block.ids.shape[1] - 1  # the last token of a row has no next one, unless rows overlap
        labels[:, :known] = block.ids[:, 1:]
    else:
        labels[...] = block.ids
    if loss is not None:
        np.copyto(labels, layout.ignore_index, where=~loss)


@dataclass(frozen=True, slots=True)
class _FlatSegments:
    """The flattened batch, cut at rows, documents and padding."""

    bounds: npt.NDArray[np.int64]  # one more than segments
    docs: npt.NDArray[np.int64]  # of each segment; -1 is padding

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.bounds)


def _flat_segments(layout: Layout, rows: int, segments: Segments) -> _FlatSegments:
    width = layout.seq_len
    inside = segments.columns < width  # the token beyond, known for its label alone, is no part of the inputs
    starts = segments.rows[inside] * width + segments.columns[inside]
    stops = starts + np.minimum(segments.lengths[inside], width - segments.columns[inside])
    bounds = np.unique(np.concatenate((starts, stops, np.arange(rows + 1) * width)))
    docs = np.full(len(bounds) - 1, -1, np.int64)
    docs[np.searchsorted(bounds, starts)] = segments.docs[inside]
    return _FlatSegments(bounds, docs)


def _fill_positions(segments: _FlatSegments, out: Array) -> None:
    flat = out.reshape(-1)
    flat[...] = np.arange(len(flat))
    flat -= np.repeat(segments.bounds[:-1], segments.lengths)


def _fill_docs(segments: _FlatSegments, out: Array) -> None:
    out.reshape(-1)[...] = np.repeat(segments.docs, segments.lengths)


def _fill_bounds(layout: Layout, segments: _FlatSegments, first_row: int, rows: int, out: Array) -> None:
    start, stop = first_row * layout.seq_len, (first_row + rows) * layout.seq_len
    first, last = np.searchsorted(segments.bounds, (start, stop)).tolist()
    count = last - first + 1
    if count > len(out):
        raise UsageError(
            f"{rows} rows hold {count - 1:,} documents and paddings, but cu_seqlens has room for {layout.max_docs:,} in "
            f"each. Open the dataset with a larger max_docs (at most seq_len, {layout.seq_len:,})."
        )
    out[:count] = segments.bounds[first : last + 1] - start
    out[count:] = stop - start  # documents without tokens, for a size that never changes
