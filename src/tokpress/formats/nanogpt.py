"""nanoGPT: `train.bin`, `val.bin`: u16 ids and nothing else.

In: shards. Out: one file a split; a link if the split has one shard, else a copy of all of them end to end. Where documents
end is not stored: the end-of-text token after each says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokpress.errors import UsageError
from tokpress.formats.base import Export, Format, Given, Part, TokenFile
from tokpress.formats.raw import count_ids, ends_after, joined_parts, token_paths

_U16 = np.dtype("<u2")


class NanoGptFormat(Format):
    opened_with = 'np.memmap("{out}/{split}.bin", np.uint16, "r")'
    in_directories = False
    holds_u32 = False

    def parts(self, export: Export) -> list[Part]:
        return [part for split, store in export.splits.items() for part in joined_parts(export, store, f"{split}.bin")]

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:
        for path in paths:
            if path.is_dir():  # it would hold train and val, which must not become one
                raise UsageError(f"{path} is a directory. Name one file of it: {path / 'train.bin'}, for example.")
        return [_read(file, given.eos_id) for file in token_paths(paths, ".bin")]


def _read(path: Path, eos_id: int | None) -> TokenFile:
    ids = np.memmap(path, _U16, "r") if count_ids(path, _U16) else np.empty(0, _U16)
    ends = ends_after(ids, -1 if eos_id is None else eos_id)
    return TokenFile(path=path, dtype=_U16, tokens=len(ids), ends=ends)
