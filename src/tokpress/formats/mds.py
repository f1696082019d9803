"""MosaicML's MDS, version 2: a sample a document, or a sample a sequence.

In: a split. Out: `SPLIT/shard.00000.mds`, ... with `tokens` and, where something is masked or padded, `loss_mask`; for LLM
Foundry, which does not read that, `turns` as JSON; and `index.json`, last.

    shard   u32 samples · u32 where each starts, and one more, where the last ends · JSON · samples
    sample  u32 size of each column that has no fixed one · columns, sorted by name
    column  of a sequence: its values. Of a document: u8 1 << 2 | width · length · values
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.formats.base import Advance, Export, Format, Part, Write, Written, has_mask
from tokpress.formats.rows import FILE_BYTES, DocRun, Sequences, doc_runs
from tokpress.formats.trainers import find_trainer
from tokpress.formats.turns import encoded_turns
from tokpress.formats.writing import PartWriter
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_LARGEST = 2**32 - 1  # bytes of a shard: places in it are u32
_TURN_BYTES = 6  # that an id takes as JSON, about
_LENGTH_BYTES = 5  # at most: the byte that says how wide a length is, and the length


class MdsFormat(Format):
    opened_with = 'StreamingDataset(local="{out}/{split}")'
    seq_len = "may"
    holds_masks = True

    def parts(self, export: Export) -> list[Part]:
        parts = []
        for split, store in export.splits.items():
            config = msgspec.json.encode(_config(export, store))
            for number, (size, samples) in enumerate(_shards(export, store)):
                name = f"shard.{number:05d}.mds"
                parts.append(Part(f"{split}-{number:05d}", size, _shard(export, store, name, config, samples)))
        return parts

    def index(self, export: Export, written: dict[str, Written]) -> dict[str, bytes]:
        indices = {}
        for split, store in export.splits.items():
            config = _config(export, store)
            shards = [
                config | {"raw_data": part.note["raw_data"], "samples": part.note["rows"], "zip_data": None}
                for part in written.values()
                if part.note["split"] == split
            ]
            if not shards:  # its reader refuses an index without any
                continue
            indices[f"{split}/index.json"] = msgspec.json.encode({"shards": shards, "version": 2})
        return indices


def _config(export: Export, store: Store) -> dict[str, Any]:
    """What a shard says of itself."""
    length = export.options.seq_len
    if _has_turns(export):
        return _said_of({"turns": ("json", None)})
    masked = has_mask(store) if length is None else Sequences(store, export.options).masked
    columns = {"loss_mask": np.dtype(np.uint8)} if masked else {}
    columns["tokens"] = store.dtype
    shape = "" if length is None else f":{length}"
    return _said_of(
        {name: (f"ndarray:{dtype.name}{shape}", length and length * dtype.itemsize) for name, dtype in columns.items()}
    )


def _said_of(columns: dict[str, tuple[str, int | None]]) -> dict[str, Any]:
    return {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": FILE_BYTES,
        "version": 2,
    }


def _has_turns(export: Export) -> bool:
    options = export.options
    return bool(options.trainer) and "turns" in find_trainer(str(options.trainer)).columns_for(options.seq_len)


def _shards(export: Export, store: Store) -> Iterator[tuple[int, Any]]:
    """Of each shard: about its size, and what gives the ends of its samples and their bytes."""
    if _has_turns(export):
        for run in doc_runs(store, shard_tokens=FILE_BYTES // _TURN_BYTES):
            yield run.tokens * _TURN_BYTES, lambda run=run: _turns(store, run)
        return
    if export.options.seq_len is None:
        masked = has_mask(store)
        for run in doc_runs(store, shard_tokens=FILE_BYTES // store.dtype.itemsize):
            yield run.tokens * store.dtype.itemsize, lambda run=run: _documents(store, run, masked=masked)
        return
    sequences = Sequences(store, export.options)
    for rows in sequences.ranges():
        yield len(rows) * sequences.row_bytes, lambda rows=rows: _rows(sequences, rows)


def _shard(export: Export, store: Store, name: str, config: bytes, samples: Any) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        ends, data = samples()
        begin = 4 + 4 * (len(ends) + 1) + len(config)
        size = begin + (int(ends[-1]) if len(ends) else 0)
        if size > _LARGEST:
            raise UsageError(f"MDS shards have up to 4 GiB, and a document of {store.url} is longer. Choose --seq-len.")
        places = np.concatenate(([len(ends)], [begin], ends + begin)).astype("<u4")
        part.write(f"{store.split_name}/{name}", [places, config, data])
        raw_data = {"basename": name, "bytes": size, "hashes": {}}
        return part.receipt(split=store.split_name, rows=len(ends), raw_data=raw_data)

    return write


def _turns(store: Store, run: DocRun) -> tuple[Int64s, Any]:
    """Samples of one column whose size stands before it."""
    shard = store.shard(run.shard)
    bounds = np.concatenate(([run.start], shard.ends[run.first : run.last])).tolist()
    samples = []
    for start, stop in pairwise(bounds):
        data = encoded_turns(shard.ids[start:stop], None if shard.mask is None else shard.mask[start:stop])
        samples.append(len(data).to_bytes(4, "little") + data)
    return np.cumsum([len(sample) for sample in samples], dtype=np.int64), b"".join(samples)


def _rows(sequences: Sequences, rows: range) -> tuple[Int64s, Any]:
    """Samples that are all of one size: a matrix of bytes."""
    arrays = sequences.gather(rows)
    columns = [arrays["loss_mask"].view(np.uint8)] if sequences.masked else []
    columns.append(arrays["input_ids"].view(np.uint8))
    samples = np.concatenate(columns, axis=1) if len(columns) > 1 else columns[0]
    return np.arange(1, len(rows) + 1, dtype=np.int64) * samples.shape[1], samples


def _documents(store: Store, run: DocRun, *, masked: bool) -> tuple[Int64s, Any]:
    """Samples of any size, put together by one join: sizes, then for each column its length and its values."""
    shard = store.shard(run.shard)
    bounds = np.concatenate(([run.start], shard.ends[run.first : run.last])) - run.start
    lengths = np.diff(bounds)
    columns: list[npt.NDArray[Any]] = [shard.ids[run.start : run.stop]]
    if masked:
        columns.insert(0, np.ones(run.tokens, np.uint8) if shard.mask is None else shard.mask[run.start : run.stop])
    widths = np.where(lengths < 2**8, 0, np.where(lengths < 2**16, 1, 2))
    said, said_ends = _said(lengths, widths)
    heads = 1 + (1 << widths)
    sizes = np.stack([heads + lengths * column.itemsize for column in columns], axis=1).astype("<u4")
    pieces = [_binary(np.arange(len(lengths) + 1) * sizes.shape[1] * 4, sizes)]
    for column in columns:
        pieces += [_binary(np.concatenate(([0], said_ends)), said), _binary(bounds * column.itemsize, column)]
    _, offsets, data = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary())).buffers()
    ends = np.frombuffer(offsets, np.int64)[1 : len(lengths) + 1]
    return ends, data if data is not None else b""


def _said(lengths: Int64s, widths: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Each length as a document's column begins with it: how wide it is, and the length itself."""
    table = np.zeros((len(lengths), _LENGTH_BYTES), np.uint8)
    table[:, 0] = (1 << 2) | widths  # one dimension
    table[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    counts = 1 + (1 << widths)
    return table[np.arange(_LENGTH_BYTES) < counts[:, None]], np.cumsum(counts)


def _binary(bounds: Int64s, values: Any) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(bounds.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
