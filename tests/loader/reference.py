"""What each field of a row should be, said as plainly as possible: a token at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tokpress
from tokpress.packing.base import Packing


@dataclass(frozen=True)
class Token:
    id: int
    doc: int
    masked: bool  # no loss here


def stream_of(store: tokpress.Store, masks: dict[str, list[int]] | None = None) -> list[Token]:
    """All documents of a store, end to end."""
    tokens = []
    for doc in range(len(store)):
        tokens += [Token(token, doc, False) for token in store.doc(doc).tolist()]
    if masks is not None:
        flat = [value for receipt in store.manifest.splits["train"].shards for value in masks[receipt.name]]
        tokens = [Token(token.id, token.doc, not value) for token, value in zip(tokens, flat, strict=True)]
    return tokens


def row_of(stream: list[Token], packing: Packing, sequence: int) -> list[Token | None]:
    """One sequence; None is padding."""
    row: list[Token | None] = [None] * packing.seq_len
    pieces = packing.pieces(np.array([sequence]))
    for column, start, stop in zip(pieces.columns.tolist(), pieces.starts.tolist(), pieces.stops.tolist(), strict=True):
        row[column : column + stop - start] = stream[start:stop]
    return row


def fields_of(
    row: list[Token | None], seq_len: int, *, shift_labels: bool, mask_across_docs: bool, pad_id: int
) -> dict[str, Any]:
    """The fields of a row of one sequence. Two documents are told apart by their numbers."""
    inputs = row[:seq_len]
    labels = []
    for column in range(seq_len):
        place = column + 1 if shift_labels else column  # of the token to predict
        target = row[place] if place < len(row) else None
        before = row[place - 1] if place > 0 else target  # what it is predicted from
        from_elsewhere = target is not None and (before is None or before.doc != target.doc)
        ignored = target is None or target.masked or (shift_labels and inputs[column] is None)
        labels.append(-100 if target is None or ignored or (mask_across_docs and from_elsewhere) else target.id)
    position_ids: list[int] = []
    bounds = [0]
    for column, token in enumerate(inputs):
        same = column > 0 and (token.doc if token else -1) == (inputs[column - 1].doc if inputs[column - 1] else -1)  # type: ignore[union-attr]
        position_ids.append(position_ids[-1] + 1 if same else 0)
        if column > 0 and not same:
            bounds.append(column)
    return {
        "input_ids": [pad_id if token is None else token.id for token in inputs],
        "labels": labels,
        "loss_mask": [label != -100 for label in labels],
        "position_ids": position_ids,
        "doc_ids": [-1 if token is None else token.doc for token in inputs],
        "cu_seqlens": [*bounds, seq_len],
    }
