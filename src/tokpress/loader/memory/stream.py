"""Ranges of a split's token stream -> ids, document bounds and masks.

In: the pieces that a packing names. Out: ids copied to where they belong, and `Segments`: which stretch of which document
stands where. Documents never cross shards, so a piece that does is cut there first. A shard is mapped, and its checksum
compared if asked for, when it is first touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s
from tokpress.errors import StoreError
from tokpress.loader.memory.gather import Gather, gather_with_numpy
from tokpress.loader.memory.maps import Maps, Span
from tokpress.loader.memory.read_ahead import ReadAhead, expect_order
from tokpress.packing.base import Pieces
from tokpress.store.durable import file_checksum
from tokpress.store.manifest import verify_hint
from tokpress.store.reader import Shard, Store

Verify = Literal["size", "first-touch"]  # sizes are always compared

_LONG_RUN_TOKENS = 64  # from here on a slice a run is faster than an index a token
_LONG_STRETCH_ROWS = 8  # of rows that follow each other, for which it pays to gather them alone


@dataclass(frozen=True, slots=True)
class Runs:
    """Pieces that lie within one shard each, in the order of rows, then columns."""

    rows: Int64s
    columns: Int64s
    shards: Int64s
    starts: Int64s  # in that shard
    lengths: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    def moved_to(self, rows: Int64s) -> Runs:
        """The same with row k as `rows[k]`; these rise."""
        return Runs(rows[self.rows], self.columns, self.shards, self.starts, self.lengths)

    def select(self, which: Any) -> Runs:
        return Runs(self.rows[which], self.columns[which], self.shards[which], self.starts[which], self.lengths[which])

    def cut(self, bounds: Int64s) -> Iterator[Runs]:
        """Those of rows bounds[k] to bounds[k + 1] - 1, which are counted from 0 then, for one k after the other."""
        places = self.rows.searchsorted(bounds).tolist()
        for first, (begin, end) in zip(bounds[:-1].tolist(), pairwise(places), strict=True):
            here = slice(begin, end)
            rows = self.rows[here] - first
            yield Runs(rows, self.columns[here], self.shards[here], self.starts[here], self.lengths[here])


@dataclass(frozen=True, slots=True)
class Segments:
    """Stretches of single documents, in the order of rows, then columns. None is empty."""

    rows: Int64s
    columns: Int64s
    lengths: Int64s
    docs: Int64s  # number in the split
    offsets: Int64s  # of the first token, within its document

    def in_rows(self, first: int, last: int) -> Segments:
        """Those of rows first .. last - 1, which are counted from 0 then."""
        here = slice(*self.rows.searchsorted((first, last)).tolist())
        return Segments(
            self.rows[here] - first, self.columns[here], self.lengths[here], self.docs[here], self.offsets[here]
        )


class TokenStream:
    """The documents of a split, end to end."""

    def __init__(self, store: Store, verify: Verify = "size", gather: Gather = gather_with_numpy) -> None:
        self.store = store
        self._gather = gather
        self.has_mask = any("mask" in receipt.files for receipt in store.manifest.splits[store.split_name].shards)
        self._verify = verify
        self.ahead: ReadAhead | None = None  # where rows come from all over
        self._sound: dict[int, Shard] = {}
        self._unseen = set(np.flatnonzero(np.diff(store.shard_token_ends, prepend=0)).tolist())  # those with tokens
        self._ids = Maps(len(store.shard_token_ends), store.dtype)
        self._masks = Maps(len(store.shard_token_ends), np.dtype(np.uint8))
        self._lock = threading.Lock()
        self._token_ends = store.shard_token_ends
        self._token_starts = np.concatenate(([0], self._token_ends[:-1])).astype(np.int64)
        self._doc_starts = np.concatenate(([0], store.shard_doc_ends[:-1])).astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        """Maps and locks stay here: the other process opens, and checks, for itself."""
        scattered = self.ahead is not None
        return {"store": self.store, "verify": self._verify, "gather": self._gather, "scattered": scattered}

    def __setstate__(self, state: dict[str, Any]) -> None:
        scattered = state.pop("scattered")
        self.__init__(**state)  # type: ignore[misc]
        self.expect(scattered=scattered)

    def expect(self, *, scattered: bool) -> None:
        """How tokens will be asked for: from all over, or in long runs, which the system itself reads ahead."""
        with self._lock:
            self.ahead = ReadAhead() if scattered else None
            for shard in self._sound.values():
                self._advise(shard)

    def _advise(self, shard: Shard) -> None:
        for data in (shard.ids, shard.mask):
            if data is not None:
                expect_order(data, scattered=self.ahead is not None)

    def shard(self, index: int) -> Shard:
        """A shard whose files are as long as they should be and, if asked for, hold what they should."""
        shard = self._sound.get(index)
        if shard is None:
            with self._lock:
                shard = self.store.shard(index)
                if self._verify == "first-touch" and index not in self._sound:
                    self._check(shard)
                self._advise(shard)
                if shard.mask is not None:
                    self._masks.add(index, shard.mask)
                self._ids.add(index, shard.ids)
                self._sound[index] = shard  # last: others take it as it is, without the lock
                self._unseen.discard(index)
        return shard

    def _open(self, runs: Runs) -> None:
        """Maps what is touched for the first time."""
        if self._unseen and not (there := self._ids.has(runs.shards)).all():
            for index in _shards_of(runs.select(~there)):
                self.shard(index)

    def _check(self, shard: Shard) -> None:
        for extension, entry in shard.receipt.files.items():
            path = self.store.path / shard.receipt.path(extension)
            if file_checksum(path) != entry.xxh3:
                raise StoreError(
                    f"{path} was changed after the build: its checksum does not match. {verify_hint(self.store.path)}, "
                    "then copy that file again or build the store again with --overwrite."
                )

    def runs(self, pieces: Pieces) -> Runs:
        """Cuts pieces where a shard ends."""
        if len(pieces.starts) and int(pieces.starts.min()) < 0:  # there is memory before a shard, but it is not ours
            raise IndexError("a sequence starts before the first token")
        first = self._token_ends.searchsorted(pieces.starts, "right")
        last = self._token_ends.searchsorted(pieces.stops)  # the shard of the last token, as no piece is empty
        if (first == last).all():
            begin = self._token_starts[first]
            return Runs(pieces.rows, pieces.columns, first, pieces.starts - begin, pieces.stops - pieces.starts)
        piece, within = ragged(last - first + 1)
        shards = first[piece] + within
        starts = np.maximum(pieces.starts[piece], self._token_starts[shards])
        stops = np.minimum(pieces.stops[piece], self._token_ends[shards])
        columns = pieces.columns[piece] + starts - pieces.starts[piece]
        runs = Runs(pieces.rows[piece], columns, shards, starts - self._token_starts[shards], stops - starts)
        return runs.select(runs.lengths > 0)  # a shard may have documents, but no tokens

    def copy_ids(self, runs: Runs, out: npt.NDArray[Any]) -> None:
        self._open(runs)
        if len(runs):
            self._copy(self._ids, runs, out)

    def copy_mask(self, runs: Runs, out: npt.NDArray[np.uint8]) -> None:
        """1 where there is to be loss. A shard without a mask leaves it as it is."""
        self._open(runs)
        runs = runs.select(self._masks.has(runs.shards))
        if len(runs):
            self._copy(self._masks, runs, out)

    def _copy(self, maps: Maps, runs: Runs, out: npt.NDArray[Any]) -> None:
        span, starts = maps.locate(runs.shards, runs.starts)
        ahead = self.ahead
        with nullcontext() if ahead is None else ahead.of(span, starts, runs.lengths):
            _copy_runs(self._gather, span, starts, runs, out)

    def segments(self, runs: Runs) -> Segments:
        """Cuts runs where a document ends."""
        parts = []
        for index in _shards_of(runs):
            here = np.flatnonzero(runs.shards == index)
            rows, columns, lengths, docs, offsets = cut_at_documents(
                self.shard(index).ends,
                runs.rows[here],
                runs.columns[here],
                runs.starts[here],
                runs.starts[here] + runs.lengths[here],
            )
            parts.append((rows, columns, lengths, docs + self._doc_starts[index], offsets))
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 5
        order = np.lexsort((joined[1], joined[0]))
        return Segments(*(column[order] for column in joined))


def cut_at_documents(
    ends: Int64s, rows: Int64s, columns: Int64s, starts: Int64s, stops: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Runs of tokens, cut where a document ends: the columns of `Segments`, documents counted from the first of `ends`."""
    first = ends.searchsorted(starts, "right")
    run, within = ragged(ends.searchsorted(stops) - first + 1)
    docs = first[run] + within
    doc_starts = np.where(docs > 0, ends[docs - 1], 0)
    begins = np.maximum(starts[run], doc_starts)
    lengths = np.minimum(stops[run], ends[docs]) - begins
    some = lengths > 0  # empty documents stand nowhere
    run, docs, begins = run[some], docs[some], begins[some]
    return rows[run], columns[run] + begins - starts[run], lengths[some], docs, begins - doc_starts[some]


def ragged(counts: Int64s) -> tuple[Int64s, Int64s]:
    """For counts [2, 0, 3]: [0, 0, 2, 2, 2] and [0, 1, 0, 1, 2]."""
    which = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, within


def _shards_of(runs: Runs) -> list[int]:
    if len(runs) and (runs.shards == runs.shards[0]).all():
        return [int(runs.shards[0])]
    # Not by numpy.unique, which would import masked arrays before the first batch.
    return sorted(set(runs.shards.tolist()))


def _copy_runs(gather: Gather, span: Span, starts: Int64s, runs: Runs, out: npt.NDArray[Any]) -> None:
    """Each run to where it belongs, in the way that costs least for runs like these."""
    rows, columns, lengths = runs.rows, runs.columns, runs.lengths
    whole = lengths == out.shape[1]
    count = np.count_nonzero(whole)
    if count == len(out):
        gather(span, starts, rows, out)
        return
    if count:
        for part in _stretches(rows[whole]):
            gather(span, starts[whole][part], rows[whole][part], out)
        rows, columns, lengths, starts = (values[~whole] for values in (rows, columns, lengths, starts))
    if int(lengths.sum()) >= _LONG_RUN_TOKENS * len(rows):
        each = (values.tolist() for values in (rows, columns, starts, lengths))
        for row, column, start, length in zip(*each, strict=True):
            out[row, column : column + length] = span.data[start : start + length]
    else:
        run, within = ragged(lengths)
        out[rows[run], columns[run] + within] = span.data[starts[run] + within]


def _stretches(rows: Int64s) -> list[slice]:
    """Where rows follow each other, as they do but for a few that cross a shard's end; or all, if it is hardly ever so."""
    bounds = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    if len(bounds) > 2 and len(rows) < _LONG_STRETCH_ROWS * len(bounds):
        return [slice(None)]
    return [slice(first, last) for first, last in pairwise(bounds)]
