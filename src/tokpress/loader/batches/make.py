"""Ranges of tokens -> batches.

In: the ranges that fill some rows, of one source or several with the same layout. Out: the fields of all rows, which are
then cut into batches of equal size. Several small batches are made at once: they share what a call costs beside its copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.loader.batches.fields import Block, Layout, make_fields
from tokpress.loader.memory.buffers import Allocate, Array, new_memory
from tokpress.loader.memory.gather import GatherSource, gather_rows
from tokpress.loader.memory.ranges import Ranges, Segments
from tokpress.loader.memory.stream import TokenStream

Batch = dict[str, Any]  # arrays or tensors


@dataclass(frozen=True, slots=True)
class SourceRanges:
    """What one source gives to some rows."""

    stream: TokenStream
    ranges: Ranges
    width: int  # of its rows

    def cut(self, bounds: Int64s) -> Iterator[SourceRanges]:
        """By rows, as `Ranges.cut`."""
        return (SourceRanges(self.stream, ranges, self.width) for ranges in self.ranges.cut(bounds))


def make_batches(
    layout: Layout,
    sources: Sequence[SourceRanges],
    rows: int,
    allocate: Allocate = new_memory,
    *,
    batches: int = 1,
    copy_ids: bool = False,
) -> dict[str, Array]:
    """The fields of so many rows, which are so many batches of equal size.

    `copy_ids`: ids, too, have to be in memory from `allocate`, not where they were gathered.
    """
    with ExitStack() as held:
        for source in sources:
            held.enter_context(source.stream.holding(source.ranges))
        return _make_batches(layout, sources, rows, allocate, batches, copy_ids=copy_ids)


def _make_batches(
    layout: Layout, sources: Sequence[SourceRanges], rows: int, allocate: Allocate, batches: int, *, copy_ids: bool
) -> dict[str, Array]:
    shape = (rows, max(source.width for source in sources))
    ids = _ids(layout, sources, shape, allocate, copy_ids=copy_ids)
    padded = sum(int(source.ranges.lengths.sum()) for source in sources) < ids.size
    real = _covered(sources, shape) if padded and layout.needs_loss else None
    mask = _mask(sources, shape) if layout.needs_loss else None
    segments = _segments(sources) if layout.needs_segments else None
    return make_fields(layout, Block(ids, real, mask, segments), allocate, batches=batches)


def cut_batches(arrays: dict[str, Array], count: int, as_tensors: bool) -> Iterator[Batch]:
    """So many batches of equal size, in the same memory; each is cut when it is asked for."""
    cut = {
        name: array if name == "cu_seqlens" else array.reshape(count, -1, array.shape[1])
        for name, array in arrays.items()
    }
    return cut_rows(cut, count, as_tensors)


def cut_rows(arrays: dict[str, Array], count: int, as_tensors: bool) -> Iterator[Batch]:
    """The k-th item of each array, for one k after the other."""
    deliver = _delivered_as(as_tensors)
    for k in range(count):
        yield {name: deliver(array[k]) for name, array in arrays.items()}


def _delivered_as(as_tensors: bool) -> Callable[[Array], Any]:
    """The same memory, as a tensor or as it is."""
    if not as_tensors:
        return lambda array: array
    import torch

    return torch.from_numpy


def _ids(
    layout: Layout, sources: Sequence[SourceRanges], shape: tuple[int, int], allocate: Allocate, *, copy_ids: bool
) -> Array:
    parts: dict[np.dtype[Any], list[GatherSource]] = {}
    for source in sources:
        part = GatherSource(source.ranges, source.stream.ids, source.stream.ahead)
        parts.setdefault(source.stream.store.dtype, []).append(part)
    (dtype, first), *others = parts.items()
    fits = all(0 <= layout.pad_id <= np.iinfo(stored).max for stored in parts)
    padding = layout.pad_id if fits else 0
    gathered = gather_rows(first, shape, dtype, padding=padding)
    if fits and not others and not copy_ids:
        if dtype.itemsize == layout.dtype.itemsize:
            return gathered.view(layout.dtype)
        if shape[1] != layout.seq_len:  # every field is a copy
            return gathered
    ids = allocate("input_ids" if shape[1] == layout.seq_len else "ids", shape, layout.dtype)
    ids[...] = gathered
    for dtype, same in others:  # vocabularies of unequal sizes: hardly anybody mixes them
        rows = np.unique(np.concatenate([part.ranges.rows for part in same]))
        ids[rows] = gather_rows(same, shape, dtype, padding=padding)[rows]
    if not fits:
        np.copyto(ids, layout.pad_id, where=~_covered(sources, shape))
    return ids


def _covered(sources: Sequence[SourceRanges], shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Where a token stands; the rest is padding."""
    change = np.zeros(shape[0] * shape[1] + 1, np.int8)
    for source in sources:
        starts = source.ranges.rows * shape[1] + source.ranges.columns
        change[starts] += 1
        change[starts + source.ranges.lengths] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).reshape(shape) > 0


def _mask(sources: Sequence[SourceRanges], shape: tuple[int, int]) -> npt.NDArray[np.uint8] | None:
    """1 where there is to be loss, as it is where a shard has no mask. None: everywhere."""
    if not any(source.stream.has_mask for source in sources):
        return None
    parts = [GatherSource(source.ranges, source.stream.mask, source.stream.ahead) for source in sources]
    return gather_rows(parts, shape, np.dtype(np.uint8), padding=1)


def _segments(sources: Sequence[SourceRanges]) -> Segments:
    found = [source.stream.segments(source.ranges) for source in sources]
    if len(found) == 1:
        return found[0]
    rows, columns, lengths, docs, offsets = (
        np.concatenate([getattr(segments, name) for segments in found]) for name in Segments.__slots__
    )
    order = np.lexsort((columns, rows))
    return Segments(rows[order], columns[order], lengths[order], docs[order], offsets[order])
