"""Operations on batches of text: joining small ones, finding a record's place, setting records aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tokpress.batches import TextBatch, concat_text, in_order
from tokpress.documents.base import rejected
from tokpress.records import Input, Place

_MANY_REJECTS = 1000  # held back; more are told at once, so that a hopeless run stops early
_MANY_EMPTY = 64  # batches without a text, of which whoever watches is to hear as well


def place(batch: TextBatch, i: int) -> Place:
    return int(batch.sources[i]), int(batch.positions[i])


def set_aside(batch: TextBatch, reasons: Mapping[Place, str], detail: str, inputs: Sequence[Input]) -> TextBatch:
    """The batch without the documents for which there is a reason; they are rejects instead."""
    if not reasons:
        return batch
    culprits = [i for i in range(len(batch)) if place(batch, i) in reasons]
    if not culprits:
        return batch
    found = rejected(batch, {i: (reasons[place(batch, i)], detail) for i in culprits}, inputs)
    return batch.only(np.delete(np.arange(len(batch)), culprits), in_order([*batch.rejects, *found]))


def coalesce(batches: Iterator[TextBatch], min_bytes: int) -> Iterator[TextBatch]:
    """Joins batches that are much smaller than an engine call is worth: those of many small files, or few rows."""
    held: list[TextBatch] = []
    held_bytes = held_rejects = held_empty = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.text_bytes
        del batch
        held_rejects += len(held[-1].rejects)
        held_empty += not len(held[-1])
        if held_bytes >= min_bytes // 2 or held_rejects > _MANY_REJECTS or held_empty == _MANY_EMPTY:
            joined = [concat_text(held)]
            held, held_bytes, held_rejects, held_empty = [], 0, 0, 0
            yield joined.pop()
    if held:
        yield concat_text(held)
