"""Ranges of shards -> rows, copied in one call.

In: ranges of one source or several, and the memory that holds them. Out: rows in which each range stands where it belongs,
and padding wherever there is none. The copying is Arrow's: in an array of binary views each item is so many bytes of some
buffer from an offset on, and its cast to plain binary lays them end to end. So rows come from a thousand shards as fast as
from one, no Python object is made for a row, and the interpreter's lock is released once. No thread pool takes part: threads
that wait for each other lose most of their rate beside a process that computes. Arrow does not look whether a view lies
within its buffer, so every range is compared with its shard's size before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s
from tokpress.loader.memory.buffers import Array
from tokpress.loader.memory.ranges import Ranges, ragged
from tokpress.loader.memory.read_ahead import ReadAhead
from tokpress.storage.lost_pages import check, lost

_BUFFER_BYTES = 2**30  # a view's offset and length have 31 bits, so a larger array is several buffers
_INLINE_BYTES = 12  # a view of so many holds the bytes itself
_MOST_SHARDS = 1024  # in one call: all of them are mapped while it lasts
_WITHOUT_END = np.iinfo(np.int64).max


class Mapped:
    """An array as views can point to it: buffer k begins with byte k * _BUFFER_BYTES and reaches to the end."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.buffers = [pa.py_buffer(array[first:]) for first in range(0, len(array), _buffer_items(array.dtype))]


class GatherSource(NamedTuple):
    ranges: Ranges
    memory_of: Callable[[int], Mapped | None]  # of a shard; None: it has none, and its ranges are padding
    ahead: ReadAhead | None = None

    def cut(self, bounds: Int64s) -> Iterator[GatherSource]:
        """By rows, as `Ranges.cut`."""
        return (GatherSource(ranges, self.memory_of, self.ahead) for ranges in self.ranges.cut(bounds))


def gather_rows(
    sources: Sequence[GatherSource], shape: tuple[int, int], dtype: np.dtype[Any], *, padding: int
) -> Array:
    """Rows in memory of their own, which may be written to. A range outside its shard is an IndexError."""
    size = shape[0] * shape[1]
    if not size:
        return np.empty(shape, dtype)
    if (parts := min(_parts(sources), shape[0])) > 1:
        bounds = np.linspace(0, shape[0], parts + 1, dtype=np.int64)
        cut = zip(*(source.cut(bounds) for source in sources), strict=True)
        heights = np.diff(bounds).tolist()
        return np.concatenate(
            [_gather(part, (rows, shape[1]), dtype, padding) for part, rows in zip(cut, heights, strict=True)]
        )
    return _gather(sources, shape, dtype, padding)


def _parts(sources: Sequence[GatherSource]) -> int:
    """In how many parts to copy, so that not too many shards have to be mapped at the same time."""
    if sum(len(source.ranges) for source in sources) <= _MOST_SHARDS:
        return 1
    shards = sum(int(np.count_nonzero(np.bincount(source.ranges.shards))) for source in sources)
    return -(-shards // _MOST_SHARDS)


def _gather(sources: Sequence[GatherSource], shape: tuple[int, int], dtype: np.dtype[Any], padding: int) -> Array:
    size = shape[0] * shape[1]
    arrays = [Mapped(np.empty(0, dtype))]  # in its place the padding
    slices = _sorted([_slices_of(source, shape[1], arrays) for source in sources])
    if len((gaps := _gaps(slices, size)).at):
        slices = _sorted([slices, gaps])
    arrays[0] = Mapped(np.full(int(slices.lengths[slices.arrays == 0].max(initial=0)), padding, dtype))
    views = _views(slices, arrays, dtype)
    buffers = [None, pa.py_buffer(views), *chain.from_iterable(mapped.buffers for mapped in arrays)]
    binary = pa.Array.from_buffers(pa.binary_view(), len(views), buffers)
    binary = binary.cast(pa.large_binary(), memory_pool=_memory_pool())
    if lost:
        check(*(mapped.array for mapped in arrays))
    rows: Array = np.frombuffer(binary.buffers()[2], dtype, size).reshape(shape)
    return rows


class _Slices(NamedTuple):
    """What goes where in the flattened rows; in the order of `at`."""

    at: Int64s
    arrays: Int64s  # numbers
    starts: Int64s  # in that array
    lengths: Int64s


def _slices_of(source: GatherSource, width: int, arrays: list[Mapped]) -> _Slices:
    """Adds what is needed to `arrays`, and asks for what will be read."""
    ranges, ahead = source.ranges, source.ahead
    used = np.flatnonzero(np.bincount(ranges.shards)).tolist()
    numbers = np.zeros(used[-1] + 1 if used else 0, np.int64)  # of each shard's array; 0: padding
    sizes = np.full(len(numbers), _WITHOUT_END)
    for shard in used:
        if (mapped := source.memory_of(shard)) is not None:
            numbers[shard], sizes[shard] = len(arrays), len(mapped.array)
            arrays.append(mapped)
    stops = ranges.starts + ranges.lengths
    if (ranges.starts < 0).any() or (stops > sizes[ranges.shards]).any():
        raise IndexError("a range of tokens lies outside its shard")
    chosen = numbers[ranges.shards]
    if ahead is not None and ahead.wanted():
        for number in numbers[numbers > 0].tolist():
            here = np.flatnonzero(chosen == number)
            ahead.ask(arrays[number].array, ranges.starts[here].tolist(), stops[here].tolist())
    starts = ranges.starts if chosen.all() else np.where(chosen > 0, ranges.starts, 0)
    return _Slices(ranges.rows * width + ranges.columns, chosen, starts, ranges.lengths)


def _sorted(parts: Sequence[_Slices]) -> _Slices:
    if len(parts) == 1:
        return parts[0]
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return _Slices(*(column[order] for column in joined))


def _gaps(slices: _Slices, size: int) -> _Slices:
    """What no slice fills: padding."""
    begins = np.concatenate(([0], slices.at + slices.lengths))
    lengths = np.concatenate((slices.at, [size])) - begins
    if (lengths < 0).any():
        raise IndexError("ranges of tokens overlap, or lie outside their rows")
    some = lengths > 0
    zeros = np.zeros(np.count_nonzero(some), np.int64)
    return _Slices(begins[some], zeros, zeros, lengths[some])


def _views(slices: _Slices, arrays: Sequence[Mapped], dtype: np.dtype[Any]) -> Array:
    """As Arrow lays them out: length, four bytes that a copy does not need, buffer, offset; or length and data."""
    _, numbers, starts, lengths = slices
    items = _buffer_items(dtype)
    if int(lengths.max()) > items:  # longer than a view can be
        which, within = ragged(-(-lengths // items))
        numbers, starts = numbers[which], starts[which] + within * items
        lengths = np.minimum(lengths[which] - within * items, items)
    first_buffers = np.cumsum([0, *(len(mapped.buffers) for mapped in arrays[:-1])])
    views = np.zeros((len(starts), 4), np.int32)
    views[:, 0] = lengths * dtype.itemsize
    views[:, 2] = first_buffers[numbers] + starts // items
    views[:, 3] = starts % items * dtype.itemsize
    inline = views.view(np.uint8)[:, 4:]
    for i in np.flatnonzero(views[:, 0] <= _INLINE_BYTES).tolist():
        data = arrays[numbers[i]].array[starts[i] : starts[i] + lengths[i]].view(np.uint8)
        inline[i, : len(data)] = data
    return views


@cache
def _memory_pool() -> Any:
    """The one of Arrow's that keeps megabytes for a while, whichever is its default here. Where they are given back, all
    pages are new each time: with jemalloc a bundle takes four times as long."""
    try:
        return pa.mimalloc_memory_pool()
    except NotImplementedError:  # Arrow was built without it
        return pa.default_memory_pool()


def _buffer_items(dtype: np.dtype[Any]) -> int:
    return _BUFFER_BYTES // dtype.itemsize
