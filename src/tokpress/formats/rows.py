"""What formats with rows share: documents, or sequences of a packing.

In: a split. Out: runs of documents that lie in one shard, cut by tokens; or ranges of sequences, gathered as a loader does
it, some MB at a time. Nothing is done for each token in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.formats.base import ExportOptions, has_mask, shards_of
from tokpress.formats.writing import BLOCK_BYTES
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.memory.buffers import Array
from tokpress.loader.memory.ranges import Segments
from tokpress.store.reader import Store

FILE_BYTES = 64 * 1024**2  # of ids in a file of rows, if the format sets no other bound
_MOST_DOCS = 2**20  # in a run, so that a million empty documents take no more memory than full ones


@dataclass(frozen=True, slots=True)
class DocRun:
    """Documents `first` to `last` of a shard, which are its tokens `start` to `stop`."""

    shard: int
    first: int
    last: int
    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start

    def cut(self, ends: Int64s, most_tokens: int) -> list[DocRun]:
        """The same in runs of at most so many tokens; a longer document is a run of its own."""
        runs = []
        first, start = self.first, self.start
        while first < self.last:
            fitting = int(np.searchsorted(ends[first : self.last], start + most_tokens, "right"))
            last = first + min(max(fitting, 1), _MOST_DOCS)
            stop = int(ends[last - 1])
            runs.append(DocRun(self.shard, first, last, start, stop))
            first, start = last, stop
        return runs


def doc_runs(store: Store, *, shard_tokens: int) -> list[DocRun]:
    """All documents of a split, cut where shards end and after so many tokens."""
    runs = []
    for number, receipt in enumerate(shards_of(store)):
        whole = DocRun(number, 0, receipt.docs, 0, receipt.tokens)
        runs += whole.cut(store.shard(number).ends, shard_tokens)
    return runs


def doc_files(store: Store, *, file_tokens: int) -> list[list[DocRun]]:
    """All documents of a split in files of at most so many tokens, whatever its shards; a longer one has its own file."""
    files: list[list[DocRun]] = []
    room = 0
    for number, receipt in enumerate(shards_of(store)):
        ends = store.shard(number).ends
        first = start = 0
        while first < receipt.docs:
            fitting = int(np.searchsorted(ends[first:], start + room, "right"))
            if not files or not fitting:
                files.append([])
                room = file_tokens
                fitting = max(int(np.searchsorted(ends[first:], start + room, "right")), 1)
            last, stop = first + fitting, int(ends[first + fitting - 1])
            files[-1].append(DocRun(number, first, last, start, stop))
            room = max(room - (stop - start), 0)
            first, start = last, stop
    return files


class Sequences:
    """The sequences of a split as arrays: `input_ids`, and `loss_mask` if anything is masked or padded."""

    def __init__(
        self, store: Store, options: ExportOptions, *, dtype: npt.DTypeLike = None, shift_labels: bool = False
    ) -> None:
        assert options.seq_len is not None
        assert options.method is not None
        self.masked = has_mask(store) or options.method != "concat" or options.packing.get("keep_last", False)
        self.data = PretokenizedDataset(
            store,
            seq_len=options.seq_len,
            method=options.method,
            split=store.split_name,
            fields=("input_ids", "loss_mask") if self.masked or shift_labels else ("input_ids",),
            shift_labels=shift_labels,
            dtype=options.dtype or dtype or store.dtype,
            output="numpy",
            **options.packing,
        )
        self.data.stream.expect(scattered=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.layout.dtype

    @property
    def row_bytes(self) -> int:
        return self.data.seq_len * (self.dtype.itemsize + int(self.masked))

    def ranges(self, range_bytes: int = FILE_BYTES) -> list[range]:
        """All sequences, in ranges of about so many bytes."""
        return list(_steps(range(len(self.data)), max(range_bytes // self.row_bytes, 1)))

    def blocks(self, rows: range, block_bytes: int = BLOCK_BYTES) -> Iterator[range]:
        """A range in pieces that are worked on at a time."""
        return _steps(rows, max(block_bytes // self.row_bytes, 1))

    def gather(self, rows: range) -> dict[str, Array]:
        return self.data.batch(np.arange(rows.start, rows.stop))

    def segments(self, rows: range) -> Segments:
        """Which range of which document stands where in these rows."""
        return self.data.stream.segments(self.data.ranges(np.arange(rows.start, rows.stop)).ranges)


def _steps(rows: range, step: int) -> Iterator[range]:
    return (rows[first : first + step] for first in range(0, len(rows), step))
