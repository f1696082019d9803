"""NumPy arrays: `input.npy`, `target.npy`, `mask.npy`, a row a sequence.

In: sequences of a packing; a document a row, padded, unless another method is asked for. Out: real `.npy` files, to be
opened with `mmap_mode="r"`. Targets are the inputs shifted by one; the mask is 1 where a target counts: not in padding, not
at a row's end without a next token, not where the store's own mask is 0. The files have their size from the start; each
part writes its rows straight into a map.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.rows import Sequences
from tokpress.formats.writing import PartWriter
from tokpress.loader.batches.make import make_batches
from tokpress.loader.memory.buffers import Array
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_ARRAYS = ("input", "target", "mask")


class NpyFormat(Format):
    opened_with = 'np.load("{out}/{split}/input.npy", mmap_mode="r")'
    seq_len = "must"
    methods = ("pad", "concat", "bestfit")
    holds_masks = True
    dtypes = ("uint16", "uint32", "int32", "int64")

    def parts(self, export: Export) -> list[Part]:
        parts = []
        for split, store in export.splits.items():
            sequences = _sequences(export, store)
            arrays = _Arrays(sequences, split)
            for number, rows in enumerate(sequences.ranges() or [range(0)]):
                size = len(rows) * arrays.row_bytes
                parts.append(Part(f"{split}-{number:05d}", size, _rows(export, sequences, arrays, rows)))
        return parts


def _sequences(export: Export, store: Store) -> Sequences:
    return Sequences(store, export.options, shift_labels=True)


class _Arrays:
    """The three files of a split: their headers, sizes and maps."""

    def __init__(self, sequences: Sequences, split: str) -> None:
        self._shape = (len(sequences.data), sequences.data.seq_len)
        self._dtypes = dict(zip(_ARRAYS, (sequences.dtype, sequences.dtype, np.dtype(np.uint8)), strict=True))
        self._names = {array: f"{split}/{array}.npy" for array in _ARRAYS}
        self._headers = {array: array_header(self._shape, dtype) for array, dtype in self._dtypes.items()}

    @property
    def row_bytes(self) -> int:
        return self._shape[1] * sum(dtype.itemsize for dtype in self._dtypes.values())

    def open(self, files: LocalStorage, array: str) -> Array:
        """The whole array as a map that can be written to. Its header is the same whoever writes it."""
        name, header = self._names[array], self._headers[array]
        files.reserve(name, self._size(array))
        files.write_at(name, 0, [header])
        if not math.prod(self._shape):
            return np.empty(self._shape, self._dtypes[array])
        with files.reserved(name) as file:
            return np.memmap(file, self._dtypes[array], "r+", len(header), self._shape)

    def close(self, files: LocalStorage, array: str, part: PartWriter, rows: range) -> None:
        files.sync(files.local(self._names[array]))
        written = len(rows) * self._shape[1] * self._dtypes[array].itemsize
        part.mapped(self._names[array], self._size(array), written)

    def _size(self, array: str) -> int:
        return len(self._headers[array]) + math.prod(self._shape) * self._dtypes[array].itemsize


def array_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """What stands before the bytes of an array in a `.npy` file, as `numpy.save` writes it."""
    header = io.BytesIO()
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)  # type: ignore[no-untyped-call]
    return header.getvalue()


def _rows(export: Export, sequences: Sequences, arrays: _Arrays, rows: range) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        maps = {array: arrays.open(files, array) for array in _ARRAYS}
        for block in sequences.blocks(rows):
            _gather(sequences, block, maps)
        for array, mapped in maps.items():
            if isinstance(mapped, np.memmap):
                mapped.flush()
            arrays.close(files, array, part, rows)
        return part.receipt(split=sequences.data.store.split_name, rows=len(rows))

    return write


def _gather(sequences: Sequences, rows: range, maps: dict[str, Array]) -> None:
    """These rows, gathered straight into the maps."""
    gathered: dict[str, Array] = {}
    stretch = slice(rows.start, rows.stop)

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if name == "input_ids":
            gathered[name] = maps["input"][stretch]
        elif name == "loss_mask":
            gathered[name] = maps["mask"][stretch].view(np.bool_)
        else:  # concat: rows one token wider, so that the last input has its target
            gathered[name] = np.empty(shape, dtype)
        return gathered[name]

    data = sequences.data
    make_batches(data.layout, [data.ranges(np.arange(rows.start, rows.stop))], len(rows), allocate, copy_ids=True)
    ids = gathered.get("ids", gathered["input_ids"])
    target = maps["target"][stretch]
    target[:, : ids.shape[1] - 1] = ids[:, 1:]
    target[:, ids.shape[1] - 1 :] = sequences.data.layout.pad_id
