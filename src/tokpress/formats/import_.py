"""`tokpress.import_tokens`: another trainer's token files as a store.

In: token files, and the tokenizer that made them. Out: a finished store, a shard a file. Where a file is raw ids it is
linked: one more name for the same bytes, so it must not be changed afterwards (`tokpress verify` would tell). Where
documents end is read from the file's index; only nanoGPT's and llm.c's have none, and are searched for EOS. Every id is
checked against the vocabulary. Stopped, the same call goes on: what has a receipt is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

import tokpress
from tokpress.config import BuildConfig, TokenizerConfig
from tokpress.documents.frame import Frame, frame_for
from tokpress.documents.splits import VAL
from tokpress.engines.load import load_files, reference_engine
from tokpress.errors import IdRangeError, InputError, TokenizerError, UsageError
from tokpress.formats import IMPORTABLE
from tokpress.formats.base import Given, TokenFile, open_format
from tokpress.formats.raw import blocks_of
from tokpress.machine import usable_cores
from tokpress.records import (
    FORMAT_VERSION,
    SHARDS,
    TRAIN,
    Counts,
    FileEntry,
    Input,
    Parity,
    Plan,
    Receipt,
    RunFacts,
    Slice,
    TokenizerInfo,
    shard_name,
)
from tokpress.sources.files import check_unchanged
from tokpress.storage.local import LocalStorage
from tokpress.store import unfinished
from tokpress.store.manifest import encode, read_manifest
from tokpress.store.reader import Store
from tokpress.store.receipts import Receipts, read_receipts
from tokpress.store.recheck import fitting
from tokpress.store.seal import seal_store
from tokpress.threads import thread_pool

Progress = Callable[[int, int], None]  # bytes just done, and those of all files
_SEARCHED = ("nanogpt", "llmc")  # formats without an index: documents end with EOS
_DTYPES = ("uint16", "uint32")


def import_tokens(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str,  # noqa: A002 - `--from` on the command line, which Python keeps for itself
    tokenizer: str | os.PathLike[str],
    out: str | os.PathLike[str],
    val: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    eos_token: str | None = None,
    dtype: str | None = None,
    copy: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Adopts token files as a store at `out`; those of `val` as a split of that name. `dtype` is for dolma's, which do not
    say theirs; default: the tokenizer's.

    `paths`: a prefix, files or directories of that `format`. `eos_token`: what ends a document where the files do not
    say. `copy`: copy token files where a link would do. `overwrite`: replace a store that is there. `progress` is
    told the bytes done and those of all.

        tokpress.export("tokens", to="megatron", out="tokens-megatron")
        store = tokpress.import_tokens("tokens-megatron/train", format="megatron", tokenizer="tokenizer.json", out="again")
    """
    began = perf_counter()
    if format not in IMPORTABLE:
        raise UsageError(f"{format!r} cannot be imported. Choose one of {', '.join(IMPORTABLE)}.")
    storage = LocalStorage(out)
    unfinished.check_output(storage)
    config = BuildConfig(tokenizer=TokenizerConfig(spec=os.fspath(tokenizer), eos_token=eos_token))
    files = load_files(config.tokenizer)
    info = reference_engine(files, config.tokenizer.special_tokens).info
    eos_id = _eos(config.tokenizer, info, required=format in _SEARCHED or eos_token is not None)
    given = Given(_dtype(dtype, info), eos_id)
    found = _find(paths, format, given)
    train = len(found)
    if val:
        found = _same_dtype([*found, *_find(val, format, given)])
    plan = _plan(found, train, format, eos_id, info)
    with storage.lock():
        if overwrite or unfinished.stored_plan(storage) is None:
            unfinished.begin(storage, plan, files)
        unfinished.check_same_plan(storage, plan)
        if unfinished.is_finished(storage):
            return Store(storage, read_manifest(storage))
        unfinished.complete(storage, files)
        _adopt(storage, found, train, info, progress, copy=copy)
        receipts = read_receipts(storage)
        for source in plan.inputs:
            check_unchanged(source)
        frame = _frame(storage, receipts, found[0].dtype, info, eos_id, searched=format in _SEARCHED)
        parity = Parity(outcome="not-needed", engine=format, reference=format)
        run = RunFacts(
            imported_from=format,
            seconds=round(perf_counter() - began, 3),
            tokpress=tokpress.__version__,
            tokenizer=config.tokenizer.spec,
        )
        manifest = seal_store(storage, plan, config, frame, receipts, parity, run, dtype=found[0].dtype)
    return Store(storage, manifest)


def _eos(config: TokenizerConfig, info: TokenizerInfo, *, required: bool) -> int | None:
    try:
        return frame_for(config, info).eos_id
    except TokenizerError:
        if required:
            raise
        return None


def _dtype(asked: str | None, info: TokenizerInfo) -> np.dtype[Any]:
    if asked is not None and asked not in _DTYPES:
        raise UsageError(f"--dtype {asked!r} is not known. Choose {' or '.join(_DTYPES)}.")
    return np.dtype(asked).newbyteorder("<") if asked else Frame(None, None, info.vocab_size).dtype


def _find(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], name: str, given: Given) -> list[TokenFile]:
    named = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = open_format(name).token_files([Path(path) for path in named], given)
    if not found:
        raise UsageError("no token files. Name some, or directories of them.")
    return _same_dtype(found)


def _same_dtype(found: list[TokenFile]) -> list[TokenFile]:
    other = next((file for file in found if file.dtype != found[0].dtype), None)
    if other is not None:
        raise InputError(
            f"{found[0].path} has ids of {found[0].dtype.itemsize} bytes, {other.path} of {other.dtype.itemsize}. "
            "Import them into stores of their own."
        )
    return found


def _plan(found: Sequence[TokenFile], train: int, name: str, eos_id: int | None, info: TokenizerInfo) -> Plan:
    inputs = []
    for number, file in enumerate(found):
        stat = file.path.stat()
        split = VAL if number >= train else msgspec.UNSET
        inputs.append(
            Input(path=os.fspath(file.path), format=name, size=stat.st_size, mtime_ns=stat.st_mtime_ns, split=split)
        )
    return Plan(
        format_version=FORMAT_VERSION,
        inputs=inputs,
        units=[[Slice(index)] for index in range(len(found))],
        options={"import": name, "dtype": found[0].dtype.name, "eos_id": eos_id},
        tokenizer=info,
    )


def _adopt(
    storage: LocalStorage,
    found: Sequence[TokenFile],
    train: int,
    info: TokenizerInfo,
    progress: Progress | None,
    *,
    copy: bool,
) -> None:
    """A shard for every file that has none, by threads: the work is reading and hashing memory."""
    total = sum(file.tokens * file.dtype.itemsize for file in found)
    done, _ = fitting(storage, read_receipts(storage), "sampled")

    def adopt(unit: int) -> int:
        file = found[unit]
        if unit not in done:
            _check_ids(file, info)
            if unit < train:
                _write_shard(storage, unit, file, copy=copy)
            else:  # a unit has a shard of `train`, which speaks for those of the others
                _write_shard(storage, unit, file, split=VAL, copy=copy)
                _write_shard(storage, unit, _nothing(file), beside=(VAL,), copy=True)
        return file.tokens * file.dtype.itemsize

    with thread_pool(usable_cores(), "import") as pool:
        for size in pool.map(adopt, range(len(found))):
            if progress is not None:
                progress(size, total)


def _blocks(file: TokenFile) -> Iterator[Any]:
    """The ids of a file, as they are to be stored."""
    stored = file.tokens - int(file.last is not None)
    if stored:
        yield from blocks_of(np.memmap(file.path, file.dtype, "r", file.offset, stored))
    if file.last is not None:
        yield np.array([file.last], file.dtype)


def _check_ids(file: TokenFile, info: TokenizerInfo) -> None:
    place = 0
    for block in _blocks(file):
        if int(block.max()) >= info.vocab_size:
            wrong = int(np.argmax(block >= info.vocab_size))
            raise IdRangeError(
                f"{file.path} holds id {int(block[wrong])} at token {place + wrong:,}, but the tokenizer has "
                f"{info.vocab_size:,} tokens. Is it the --tokenizer that these tokens were made with, and their --dtype?"
            )
        place += len(block)


def _nothing(file: TokenFile) -> TokenFile:
    return TokenFile(
        path=file.path, dtype=file.dtype, tokens=0, ends=np.empty(0, np.int64), offset=file.path.stat().st_size
    )


def _write_shard(
    storage: LocalStorage, unit: int, file: TokenFile, *, split: str = TRAIN, beside: tuple[str, ...] = (), copy: bool
) -> None:
    key = f"{SHARDS}/{shard_name(split, unit, 0)}"
    docs = len(file.ends)
    entries = {
        "bin": _ids(storage, f"{key}.bin", file, copy=copy),
        "ends": _file(storage, f"{key}.ends", [file.ends.astype("<i8")]),
        "pos": _file(storage, f"{key}.pos", [np.arange(docs, dtype="<i8")]),  # which document of its file it is
    }
    if file.mask is not None:
        if file.mask.stat().st_size != file.tokens:
            raise InputError(f"{file.mask} should have a byte for each of the {file.tokens:,} tokens of {file.path}.")
        if file.tokens and max(int(block.max()) for block in blocks_of(np.memmap(file.mask, np.uint8, "r"))) > 1:
            raise InputError(f"{file.mask} is no mask: it holds something other than 0 and 1.")
        entries["mask"] = _linked(storage, f"{key}.mask", file.mask, copy=copy)
    storage.barrier(SHARDS)
    receipt = Receipt(
        split=split,
        unit=unit,
        number=0,
        docs=docs,
        tokens=file.tokens,
        max_id=max((int(block.max()) for block in _blocks(file)), default=-1),
        files=entries,
        sources=[(unit, docs)],
        counts=Counts(read=docs, written=docs),
        rejects={},
        audited=0,
        next_input=None,
        next_position=None,
        beside=beside,
        loss_tokens=None
        if file.mask is None
        else int(np.count_nonzero(np.fromfile(storage.local(f"{key}.mask"), np.uint8))),
    )
    storage.put(f"{key}.json", encode(receipt))


def _ids(storage: LocalStorage, key: str, file: TokenFile, *, copy: bool) -> FileEntry:
    if file.offset or file.last is not None:
        return _file(storage, key, _blocks(file))
    return _linked(storage, key, file.path, copy=copy)


def _linked(storage: LocalStorage, key: str, source: Path, *, copy: bool) -> FileEntry:
    with suppress(PermissionError):  # of another user: it is theirs to sync
        storage.sync(source)
    checksum = storage.link(source, key, copy=copy) or storage.checksum(key)
    return FileEntry(storage.size(key), checksum)


def _file(storage: LocalStorage, key: str, blocks: Any) -> FileEntry:
    with storage.create(key) as file:
        for block in blocks:
            file.write(block)
    return FileEntry(file.bytes, file.checksum)


def _frame(
    storage: LocalStorage,
    receipts: Receipts,
    dtype: np.dtype[Any],
    info: TokenizerInfo,
    eos_id: int | None,
    *,
    searched: bool,
) -> Frame:
    """What stands around the documents: BOS and EOS count as added if every document that is not empty has them."""
    bos_id = info.special_tokens.get(info.bos_token) if info.bos_token else None
    begins, ends, some = bos_id is not None, eos_id is not None, False
    for receipt in (receipt for unit in receipts.values() for receipt in unit if receipt.tokens):
        some = True
        ids = np.memmap(storage.local(receipt.path("bin")), dtype, "r")
        bounds = np.memmap(storage.local(receipt.path("ends")), "<i8", "r")
        starts = np.concatenate(([0], bounds[:-1]))
        full = bounds > starts
        begins = begins and bool((ids[starts[full]] == bos_id).all())
        ends = ends and (searched or bool((ids[bounds[full] - 1] == eos_id).all()))
    return Frame(bos_id if begins and some else None, eos_id if ends else None, info.vocab_size)
