"""Megatron Bridge's packed sequences for fine-tuning: one `.npy` a split.

In: sequences of a packing. Out: `SPLIT.npy`, an array of dictionaries: `input_ids` of a row without its padding; `loss_mask`
of the token before the one that counts; `seq_start_id`, where its documents begin; and `SPLIT.json`, what packing came to.
Its reader takes nothing but a pickle; this one holds lists and arrays of numbers alone. A split is made in memory.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np

from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.rows import Sequences
from tokpress.formats.writing import PartWriter
from tokpress.storage.local import LocalStorage


class BridgeFormat(Format):
    opened_with = "packed_train_data_path={out}/{split}.npy"
    in_directories = False
    seq_len = "must"
    methods = ("bestfit", "pad", "concat")
    holds_masks = True

    def parts(self, export: Export) -> list[Part]:
        made = [(split, Sequences(store, export.options, dtype=np.int32)) for split, store in export.splits.items()]
        return [
            Part(split, len(sequences.data) * sequences.row_bytes, _file(export, split, sequences))
            for split, sequences in made
            if len(sequences.data)
        ]


def _file(export: Export, split: str, sequences: Sequences) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        rows = [row for block in sequences.blocks(range(len(sequences.data))) for row in _rows(sequences, block)]
        packed = np.empty(len(rows), object)
        packed[:] = rows
        buffer = io.BytesIO()
        np.save(buffer, packed, allow_pickle=True)
        part.write(f"{split}.npy", [buffer.getbuffer()])
        most = max((len(row["seq_start_id"]) for row in rows), default=0)
        facts = [
            {"max_samples_per_bin": most, "packed_max_seqlen": max((len(row["input_ids"]) for row in rows), default=0)}
        ]
        part.write(f"{split}.json", [msgspec.json.encode(facts)])
        return part.receipt(split=split, rows=len(rows))

    return write


def _rows(sequences: Sequences, block: range) -> list[dict[str, Any]]:
    arrays, segments = sequences.gather(block), sequences.segments(block)
    loss = arrays["loss_mask"].astype(np.uint8) if sequences.masked else np.ones_like(arrays["input_ids"], np.uint8)
    rows: list[dict[str, Any]] = []
    bounds = np.searchsorted(segments.rows, np.arange(len(block) + 1))
    for row in range(len(block)):
        mine = slice(*bounds[row : row + 2].tolist())
        columns, lengths = segments.columns[mine], segments.lengths[mine]
        if not len(columns):  # of a document without tokens
            continue
        first, stop = int(columns[0]), int(columns[-1] + lengths[-1])  # padding may stand on either side
        weights = np.zeros(stop - first, np.uint8)
        weights[:-1] = loss[row, first + 1 : stop]
        weights[columns[1:] - first - 1] = 0  # a document's first token is not predicted from the one before
        starts = (columns - first).tolist()
        rows.append(
            {"input_ids": arrays["input_ids"][row, first:stop].copy(), "loss_mask": weights, "seq_start_id": starts}
        )
    return rows
