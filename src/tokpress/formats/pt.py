"""PyTorch: chunks of sequences as tensors.

In: sequences of a packing. Out: `SPLIT/chunk_000000.pt`, ...: one tensor `[sequences, seq_len]` of int32 or int64 and
nothing else, so that it loads with `weights_only=True`; `mask_000000.pt`, u8, where something is masked or padded;
`doc_ends_000000.pt`, int32 `[documents, 2]`: the row in the chunk, and the column after a document's last token in it.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np

from tokpress.errors import UsageError
from tokpress.formats.base import Advance, Export, Format, Part, Write, Written
from tokpress.formats.rows import Sequences
from tokpress.formats.writing import PartWriter
from tokpress.storage.local import LocalStorage


class TorchFormat(Format):
    opened_with = 'torch.load("{out}/{split}/chunk_000000.pt", weights_only=True)'
    seq_len = "must"
    holds_masks = True
    dtypes = ("int32", "int64")

    def parts(self, export: Export) -> list[Part]:
        if find_spec("torch") is None:
            raise UsageError("--to pt writes tensors, but torch is not installed: pip install 'tokpress[torch]'")
        parts = []
        for split, store in export.splits.items():
            sequences = Sequences(store, export.options, dtype=np.int32)
            for number, rows in enumerate(sequences.ranges()):
                size = len(rows) * sequences.row_bytes
                parts.append(Part(f"{split}-{number:06d}", size, _chunk(export, sequences, rows, number)))
        return parts


def _chunk(export: Export, sequences: Sequences, rows: range, number: int) -> Write:
    split = sequences.data.store.split_name

    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        arrays = sequences.gather(rows)
        part.write(f"{split}/chunk_{number:06d}.pt", [_saved(arrays["input_ids"])])
        if sequences.masked:
            part.write(f"{split}/mask_{number:06d}.pt", [_saved(arrays["loss_mask"].view(np.uint8))])
        segments = sequences.segments(rows)
        ends = np.stack((segments.rows, segments.columns + segments.lengths), axis=1).astype(np.int32)
        part.write(f"{split}/doc_ends_{number:06d}.pt", [_saved(ends)])
        return part.receipt(split=split, rows=len(rows))

    return write


def _saved(array: Any) -> Any:
    import torch

    buffer = io.BytesIO()
    torch.save(torch.from_numpy(array), buffer)
    return buffer.getbuffer()
