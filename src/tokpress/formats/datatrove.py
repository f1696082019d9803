"""datatrove, nanotron: raw ids (`.ds`), document ends (`.ds.index`), loss (`.ds.loss`), a few words (`.ds.metadata`).

In: shards. Out: `SPLIT/00000_tokens.ds` and what stands beside it; ids and masks are links, the index is u64 ends in tokens.
A split without a token has no files: its reader could not map them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokpress.errors import InputError
from tokpress.formats.base import Advance, Export, Format, Given, Part, TokenFile, Write, Written, has_mask
from tokpress.formats.raw import (
    blocks_of,
    count_ids,
    group_ends,
    group_tokens,
    shard_groups,
    token_paths,
    write_ids,
    write_mask,
)
from tokpress.formats.writing import PartWriter
from tokpress.records import TOKENIZER
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store

_SUFFIX = ".ds"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class DatatroveFormat(Format):
    opened_with = 'DatatroveFolderDataset("{out}/{split}", seq_len=2048, token_size={width})'
    holds_masks = True
    names_tokenizer = True

    def parts(self, export: Export) -> list[Part]:
        return [
            Part(f"{split}-{number:05d}", size, _files(export, store, number, group, masked))
            for split, store in export.splits.items()
            if store.num_tokens
            for masked in [has_mask(store)]
            for number, group in enumerate(shard_groups(store))
            for size in [group_tokens(store, group) * store.dtype.itemsize]
        ]

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:
        return [_read(file, given.dtype) for file in token_paths(paths, _SUFFIX)]


def _files(export: Export, store: Store, number: int, group: range, masked: bool) -> Write:
    name = f"{store.split_name}/{number:05d}_tokens{_SUFFIX}"
    tokenizer = export.options.tokenizer_name or _tokenizer_name(store)
    tokens = group_tokens(store, group)
    words = f"{tokenizer}|{store.dtype.itemsize}\n{tokens}\n{_human(tokens)}"

    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        if masked:
            write_mask(part, store, group, f"{name}.loss")
        part.write(f"{name}.metadata", [words.encode()])
        part.write(f"{name}.index", (ends.astype("<u8") for ends in blocks_of(group_ends(store, group))))
        write_ids(part, store, group, name)
        return part.receipt()

    return write


def _tokenizer_name(store: Store) -> str:
    """What `AutoTokenizer` can load, which nanotron does: as it was given for the build, but a path from anywhere. Else the
    copy that the store carries."""
    given = store.manifest.run.tokenizer
    if given is not msgspec.UNSET and store.manifest.tokenizer.kind == "huggingface":
        path = Path(given).expanduser()
        if path.exists():
            return str((path if path.is_dir() else path.parent).absolute())
        if _HUB_ID.fullmatch(given):
            return given
    return str(store.storage.local(TOKENIZER).absolute())


def _human(tokens: float) -> str:
    for unit in ("T", "KT", "MT", "GT"):
        if tokens < 1000:
            return f"{tokens:.0f} {unit}" if unit == "T" else f"{tokens:.2f} {unit}"
        tokens /= 1000
    return f"{tokens:.2f} TT"


def _read(path: Path, dtype: np.dtype[Any]) -> TokenFile:
    """The width of its ids stands in `.metadata`, if that was written; else it is the tokenizer's."""
    index, words, loss = (path.with_name(path.name + ending) for ending in (".index", ".metadata", ".loss"))
    if not index.is_file():
        raise InputError(f"{path} has no {index.name} beside it, which says where its documents end. Write it again.")
    if words.is_file():
        width = words.read_text(errors="replace").partition("\n")[0].rpartition("|")[2]
        dtype = np.dtype(f"<u{width}") if width in ("2", "4") else dtype
    if index.stat().st_size % 8:
        raise InputError(
            f"{index} is no list of numbers of 8 bytes: it is cut off, or something was added. Copy it again."
        )
    ends = np.fromfile(index, "<u8").astype(np.int64)
    tokens, last = count_ids(path, dtype), int(ends[-1]) if len(ends) else 0
    if last != tokens or (ends < 0).any() or (ends[1:] < ends[:-1]).any():
        raise InputError(
            f"{index} does not fit {path}: its documents end at token {last:,}, the file at {tokens:,} (ids of "
            f"{dtype.itemsize} bytes). Is it the right --tokenizer, or --dtype?"
        )
    return TokenFile(path=path, dtype=dtype, tokens=tokens, ends=ends, mask=loss if loss.is_file() else None)
