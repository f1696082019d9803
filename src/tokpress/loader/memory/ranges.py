"""What a packing names, cut where a shard ends, then where a document ends.

In: pieces of a split's token stream. Out: `Ranges`, each within one shard, which is what can be copied; and `Segments`, each
within one document, which is what positions, bounds and masks are made from. All by whole arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tokpress.batches import Int64s


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of tokens, each within one shard, and where they go; in the order of rows, then columns. None is empty."""

    rows: Int64s
    columns: Int64s
    shards: Int64s
    starts: Int64s  # in that shard
    lengths: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    def moved_to(self, rows: Int64s) -> Ranges:
        """The same with row k as `rows[k]`; these rise."""
        return Ranges(rows[self.rows], self.columns, self.shards, self.starts, self.lengths)

    def select(self, which: Any) -> Ranges:
        return Ranges(
            self.rows[which], self.columns[which], self.shards[which], self.starts[which], self.lengths[which]
        )

    def cut(self, bounds: Int64s) -> Iterator[Ranges]:
        """Those of rows bounds[k] to bounds[k + 1] - 1, which are counted from 0 then, for one k after the other."""
        cuts = self.rows.searchsorted(bounds).tolist()
        for first_row, (first, last) in zip(bounds[:-1].tolist(), pairwise(cuts), strict=True):
            here = slice(first, last)
            rows = self.rows[here] - first_row
            yield Ranges(rows, self.columns[here], self.shards[here], self.starts[here], self.lengths[here])


@dataclass(frozen=True, slots=True)
class Segments:
    """Ranges of single documents, in the order of rows, then columns. None is empty."""

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


def cut_at_documents(
    ends: Int64s, rows: Int64s, columns: Int64s, starts: Int64s, stops: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Ranges cut where a document ends: the columns of `Segments`, documents counted from the first of `ends`."""
    first = ends.searchsorted(starts, "right")
    which, within = ragged(ends.searchsorted(stops) - first + 1)
    docs = first[which] + within
    doc_starts = np.where(docs > 0, ends[docs - 1], 0)
    begins = np.maximum(starts[which], doc_starts)
    lengths = np.minimum(stops[which], ends[docs]) - begins
    some = lengths > 0  # empty documents stand nowhere
    which, docs, begins = which[some], docs[some], begins[some]
    return rows[which], columns[which] + begins - starts[which], lengths[some], docs, begins - doc_starts[some]


def ragged(counts: Int64s) -> tuple[Int64s, Int64s]:
    """For counts [2, 0, 3]: [0, 0, 2, 2, 2] and [0, 1, 0, 1, 2]."""
    which = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, within
