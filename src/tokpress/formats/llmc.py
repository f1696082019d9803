"""llm.c, modded-nanogpt: a header of 256 i32, then ids, the separator **before** each document.

In: documents. Out: `SPLIT_000000.bin`, ..., of a chosen number of tokens whatever the shards: magic 20240520, version 1,
number of tokens, u16 ids; or magic 20240801, version 7, u32 ids, as for Llama 3. Documents of a store end with EOS: it is
moved to their front. Those that begin with BOS have their separator already and stay as they are. Where there is neither,
the tokenizer's EOS is put in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.batches import Ids, TokenBatch
from tokpress.documents.frame import Frame
from tokpress.errors import InputError, UsageError
from tokpress.formats.base import Advance, Export, Format, Given, Part, TokenFile, Write, Written
from tokpress.formats.raw import ends_after, token_paths
from tokpress.formats.rows import DocRun, doc_files
from tokpress.formats.writing import BLOCK_BYTES, PartWriter
from tokpress.records import TRAIN
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store
from tokpress.store.shard import Shard

_HEADER_BYTES = 256 * 4
_KINDS = {2: (20240520, 1), 4: (20240801, 7)}  # width of an id -> magic, version
_MOST_TOKENS = 2**31 - 1  # in a file; the header counts in i32
_FILE_TOKENS = _MOST_TOKENS // 2  # half, as every document may grow by a token; a document is never empty then


class LlmcFormat(Format):
    opened_with = '-i "{out}/{split}_*.bin"'
    in_directories = False
    sized_files = True

    def parts(self, export: Export) -> list[Part]:
        parts = []
        for split, store in export.splits.items():
            _separator(store)  # says what is missing before anything is written
            for number, runs in enumerate(_files(export, store)):
                name = f"{split}_{number:06d}.bin"
                size = sum(run.tokens for run in runs) * store.dtype.itemsize
                parts.append(Part(name, size, _file(export, store, runs, name)))
        return parts

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:
        return _read_all(token_paths(paths, ".bin"), -1 if given.eos_id is None else given.eos_id)


def _separator(store: Store) -> int | None:
    """The token to put in front; None if documents have theirs."""
    manifest = store.manifest
    if manifest.bos_id is not None and manifest.eos_id is None:
        return None
    if manifest.eos_id is not None:
        return manifest.eos_id
    named = manifest.tokenizer.eos_token
    if named is None or named not in manifest.tokenizer.special_tokens:
        raise UsageError(
            f"llmc puts a separator before each document, but {store.url} has no EOS and its tokenizer names none. "
            "Build it with --eos-token, or choose a format that has document bounds: --to megatron, datatrove, dolma."
        )
    return manifest.tokenizer.special_tokens[named]


def _files(export: Export, store: Store) -> list[list[DocRun]]:
    most = export.options.file_tokens or _FILE_TOKENS
    wanted = (export.options.min_files or 1) if store.split_name == TRAIN else 1
    if most > _FILE_TOKENS:
        raise UsageError(f"--file-tokens {most:,}: llmc files hold up to {_FILE_TOKENS:,} tokens here.")
    if not store.num_docs:
        return []
    files = doc_files(store, file_tokens=min(most, -(-store.num_tokens // wanted)))
    if len(files) < wanted:
        raise UsageError(
            f"--min-files {wanted}: {store.url} has {store.num_docs:,} documents in {store.split_name!r}, which fill "
            f"{len(files):,}: a document is not cut. Ask for fewer files."
        )
    return files


def _file(export: Export, store: Store, runs: list[DocRun], name: str) -> Write:
    def write(files: LocalStorage, advance: Advance) -> Written:
        part = PartWriter(export, files, advance)
        separator = _separator(store)
        tokens = sum(_count(store.shard(piece.shard), piece, separator) for piece in _pieces(store, runs))
        if tokens > _MOST_TOKENS:
            raise UsageError(f"llmc files hold up to {_MOST_TOKENS:,} tokens, and {name} would have {tokens:,}.")
        part.write(name, _blocks(store, runs, separator, tokens))
        return part.receipt()

    return write


def _pieces(store: Store, runs: list[DocRun]) -> Iterator[DocRun]:
    for run in runs:
        yield from run.cut(store.shard(run.shard).ends, BLOCK_BYTES // store.dtype.itemsize)


def _ended(shard: Shard, piece: DocRun, separator: int) -> Any:
    """Which of these documents end with the separator."""
    ends = np.asarray(shard.ends[piece.first : piece.last])
    some = np.diff(ends, prepend=piece.start) > 0
    some[some] = shard.ids[ends[some] - 1] == separator
    return some


def _count(shard: Shard, piece: DocRun, separator: int | None) -> int:
    if separator is None:
        return piece.tokens
    return piece.tokens + (piece.last - piece.first) - int(_ended(shard, piece, separator).sum())


def _blocks(store: Store, runs: list[DocRun], separator: int | None, tokens: int) -> Iterator[Any]:
    header = np.zeros(256, "<i4")
    header[:3] = (*_KINDS[store.dtype.itemsize], tokens)
    yield header
    for piece in _pieces(store, runs):
        shard = store.shard(piece.shard)
        ids = shard.ids[piece.start : piece.stop]
        yield ids if separator is None else _moved(store, shard, piece, ids, separator)


def _moved(store: Store, shard: Shard, piece: DocRun, ids: Ids, separator: int) -> Ids:
    ended = _ended(shard, piece, separator)
    if ended.all() and len(ids):  # then all of them move by one place, and the last one's to the front
        moved = np.empty_like(ids)
        moved[0], moved[1:] = separator, ids[:-1]
        return moved
    ends = np.asarray(shard.ends[piece.first : piece.last]) - piece.start
    keep = np.ones(len(ids), np.bool_)
    keep[ends[ended] - 1] = False
    frame = Frame(separator, None, store.manifest.tokenizer.vocab_size)
    framed = frame.apply(TokenBatch(ids[keep], ends - np.cumsum(ended)))
    return framed.ids.astype(store.dtype, copy=False)  # imported ids may be wider than their vocabulary needs


def _read_all(paths: list[Path], separator: int) -> list[TokenFile]:
    """A file's first separator belongs to the document before it: it is read as its end, not as a start."""
    mapped = [_mapped(path) for path in paths]
    found = []
    for number, (path, ids) in enumerate(zip(paths, mapped, strict=True)):
        skip = int(len(ids) > 0 and int(ids[0]) == separator)
        following = mapped[number + 1] if number + 1 < len(mapped) else None
        closed = following is None or not len(following) or int(following[0]) == separator
        ends = ends_after(ids[skip:], separator)
        tokens = len(ids) - skip
        last = separator if closed and len(ids) else None
        if last is not None:  # the last document is open, or empty
            open_at_end = len(ends) > 0 and ends[-1] == tokens and (not tokens or int(ids[-1]) != separator)
            ends = np.append(ends[:-1] if open_at_end else ends, tokens + 1)
            tokens += 1
        offset = _HEADER_BYTES + skip * ids.itemsize
        found.append(TokenFile(path=path, dtype=ids.dtype, tokens=tokens, ends=ends, offset=offset, last=last))
    return found


def _mapped(path: Path) -> Ids:
    header = np.fromfile(path, "<i4", 256)
    widths = {kind: width for width, kind in _KINDS.items()}
    width = widths.get((int(header[0]), int(header[1]))) if len(header) == 256 else None
    if width is None:
        raise InputError(f"{path} is no token file of llm.c: its header is {header[:3].tolist()}.")
    tokens = int(header[2])
    if tokens < 0 or path.stat().st_size != _HEADER_BYTES + tokens * width:
        raise InputError(f"{path} should have {tokens:,} ids of {width} bytes after its header. Copy it again.")
    dtype = np.dtype(f"<u{width}")
    return np.memmap(path, dtype, "r", _HEADER_BYTES, tokens) if tokens else np.empty(0, dtype)
