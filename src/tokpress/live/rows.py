"""Ids end to end -> an array a text.

In: a `TokenBatch`. Out: rows, cut and padded as asked for; they are views of one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tokpress.batches import TokenBatch
from tokpress.errors import UsageError

Array = npt.NDArray[Any]


def cut_rows(tokens: TokenBatch, max_length: int | None, dtype: npt.DTypeLike) -> list[Array]:
    if max_length is not None and max_length < 1:
        raise UsageError(f"max_length={max_length}: a text has room for at least one id. Leave it out to cut nothing.")
    ids = tokens.ids.astype(dtype)
    starts = [0, *tokens.ends.tolist()]
    return [
        ids[start : stop if max_length is None else min(stop, start + max_length)] for start, stop in pairwise(starts)
    ]


def pad_rows(rows: Sequence[Array], length: int | None, fill: int, dtype: npt.DTypeLike) -> list[Array]:
    """All of the same length: that given, or the longest one's."""
    block = np.full((len(rows), max(map(len, rows), default=0) if length is None else length), fill, dtype)
    for place, row in zip(block, rows, strict=True):
        place[: len(row)] = row
    return list(block)
