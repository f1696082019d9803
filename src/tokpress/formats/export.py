"""`tokpress.export`: a store as another trainer's files.

In: a store, a format, a directory. Out: that directory, whole, with a `metadata.json`. Parts are written by threads: the
work is linking and copying memory, which the interpreter's lock does not stop, and a process would take longer to start than
most exports take. A finished part has a receipt; run again, an export goes on with those that have none.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Unpack

import msgspec

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.formats.base import (
    Export,
    ExportOptions,
    Indices,
    Loss,
    Part,
    Written,
    check_options,
    open_format,
)
from tokpress.formats.losses import find_losses
from tokpress.formats.megatron_indices import read_indices
from tokpress.formats.target import ExportPlan, Metadata, SplitFacts, Target
from tokpress.formats.trainers import find_trainer
from tokpress.loader.dataset import default_pad_id
from tokpress.machine import usable_cores
from tokpress.packing import PackingOptions
from tokpress.packing import check_options as check_packing
from tokpress.storage import open_storage
from tokpress.store.manifest import read_manifest
from tokpress.store.reader import Store
from tokpress.threads import thread_pool

_SAFE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
Progress = Callable[[int, int], None]  # bytes just done, and those of the whole export


def export(
    store: Store | str | os.PathLike[str],
    *,
    to: str | None = None,
    out: str | os.PathLike[str],
    split: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    max_length: int | None = None,
    method: str | None = None,
    dtype: str | None = None,
    merge: bool = False,
    file_tokens: int | None = None,
    min_files: int | None = None,
    tokenizer_name: str | None = None,
    trainer: str | None = None,
    lossy: bool = False,
    keep: bool = False,
    indices_for: Sequence[int] | None = None,
    index_samples: Mapping[str, int] | None = None,
    index_run: str | os.PathLike[str] | None = None,
    copy: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    **packing: Unpack[PackingOptions],
) -> Metadata:
    """Writes the splits of a store (all of them, or those named) as files of another format into the directory `out`.

    `max_length` is `seq_len` with a document a row, as for supervised data. `trainer` (`--for`) names who is to read it: the
    columns are that trainer's, and an export that it would not have the store's loss tokens of is refused, unless `lossy`.
    `indices_for` has Megatron's own indices made for sequences of these lengths and for `index_samples` of each split, as a
    run would make them that says of itself what `index_run` does. Called again, it goes on where it was stopped.

    `split`: only this one, or these. `method`: how rows are filled, with its `packing` options. `dtype`: type of the
    ids (npy, pt). `merge`: one pair of files a split (megatron). `file_tokens`, `min_files`: size and number of files
    (llmc). `tokenizer_name`: what nanotron loads it by (datatrove). `keep`: the kept fields as columns (parquet,
    arrow). `copy`: copy where a link would do. `overwrite`: replace an export of something else. `workers`: threads.
    `progress` is told the bytes done and those of all.

        made = tokpress.export("tokens", to="npy", max_length=512, out="arrays")
        made.splits, made.files, made.linked_bytes
    """
    if max_length is not None:
        if seq_len is not None or method not in (None, "pad"):
            raise UsageError("--max-length N is --seq-len N with --method pad. Give the one or the other.")
        seq_len, method = max_length, "pad"
    if to is None:
        if trainer is None:
            raise UsageError("say which format: --to parquet, for example; or who reads it: --for hf.")
        to = find_trainer(trainer).to[0]
    splits = _splits(store, split)
    form = open_format(to)
    if seq_len is not None and form.seq_len != "no":
        method = method or form.methods[0]
    options = ExportOptions(
        to=to,
        splits=list(splits),
        seq_len=seq_len,
        method=method,
        packing=dict(packing),
        dtype=dtype,
        merge=merge,
        copy=copy,
        file_tokens=_asked(file_tokens, "--file-tokens"),
        min_files=_asked(min_files, "--min-files"),
        tokenizer_name=tokenizer_name or msgspec.UNSET,
        trainer=trainer or msgspec.UNSET,
        lossy=lossy or msgspec.UNSET,
        keep=keep or msgspec.UNSET,
        indices=_indices(indices_for, index_samples, index_run, list(splits)),
    )
    job = Export(splits, options, Path(out).absolute())
    _check(job)
    losses = find_losses(job)
    plan = _plan(job)
    target = Target(job.final)
    with target.work.lock():
        finished = target.check(plan, overwrite=overwrite)
        if finished is None:
            finished = _run(job, plan, losses, target, workers or usable_cores(), progress, overwrite=overwrite)
        target.tidy(plan)
    target.clean()
    return finished


def _asked(number: int | None, option: str) -> int | msgspec.UnsetType:
    if number is not None and number < 1:
        raise UsageError(f"{option} {number}: give a number from 1 on.")
    return msgspec.UNSET if number is None else number


def _indices(
    seq_lens: Sequence[int] | None,
    samples: Mapping[str, int] | None,
    run: str | os.PathLike[str] | None,
    splits: list[str],
) -> Indices | msgspec.UnsetType:
    if seq_lens is None:
        if samples or run:
            raise UsageError("--index-samples and --index-run are for --indices-for. Say for which lengths: 4096.")
        return msgspec.UNSET
    return read_indices(seq_lens, dict(samples or {}), None if run is None else Path(run), splits)


def _splits(store: Store | str | os.PathLike[str], chosen: str | Sequence[str] | None) -> dict[str, Store]:
    storage = store.storage if isinstance(store, Store) else open_storage(store)
    manifest = read_manifest(storage)
    names = list(manifest.splits) if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    if not names:
        raise StoreError(f"{storage.url} has no split to export.")
    splits = {name: Store(storage, manifest, name) for name in names}
    for name in splits:
        if not _SAFE_NAME.fullmatch(name):  # it will name files
            raise StoreError(f"{storage.url} has a split {name!r}, which cannot name a directory. Do not trust it.")
    return splits


def _check(job: Export) -> None:
    options, store = job.options, job.store.path.absolute()
    if options.method and options.packing:
        check_packing(options.method, options.packing)  # type: ignore[arg-type]
    check_options(job)
    if job.final == store or store in job.final.parents:
        raise UsageError(f"--out {job.final} is inside the store itself. Choose a directory beside it.")


def _plan(job: Export) -> ExportPlan:
    manifest = job.store.manifest
    return ExportPlan(
        options=job.options,
        store=manifest.fingerprint,
        tokenizer=manifest.tokenizer,
        dtype=manifest.dtype,
        bos_id=manifest.bos_id,
        eos_id=manifest.eos_id,
    )


def _run(
    job: Export,
    plan: ExportPlan,
    losses: list[Loss],
    target: Target,
    workers: int,
    progress: Progress | None,
    *,
    overwrite: bool,
) -> Metadata:
    form = open_format(job.options.to)
    parts = form.parts(job)
    target.begin(plan, form.directories(job), overwrite=overwrite)
    written = _write(parts, target, workers, progress)
    index = form.index(job, written)
    metadata = msgspec.structs.replace(
        _metadata(job, plan, written, index),
        losses=losses or msgspec.UNSET,
        pad_id=msgspec.UNSET if job.options.seq_len is None else default_pad_id(job.store),
    )
    target.seal(metadata, index)
    return metadata


def _write(parts: list[Part], target: Target, workers: int, progress: Progress | None) -> dict[str, Written]:
    """Every part that has no receipt, by threads; all receipts, in the order of the parts."""
    written = {part.name: receipt for part in parts if (receipt := target.finished(part.name)) is not None}
    lock = threading.Lock()
    total = sum(part.bytes for part in parts)

    def advance(count: int) -> None:
        if progress is not None:
            with lock:
                progress(count, total)

    def write(part: Part) -> tuple[str, Written]:
        receipt = part.write(target.files, advance)
        target.finish(part.name, receipt)
        return part.name, receipt

    # Known before anything is written: a part may make a file whole again, by its size, that others have lost.
    left = [part for part in parts if part.name not in written]
    advance(sum(part.bytes for part in parts if part.name in written))
    with thread_pool(max(min(workers, len(left)), 1), "export") as pool:
        for future in as_completed([pool.submit(write, part) for part in left]):
            written.update([future.result()])
    return {part.name: written[part.name] for part in parts}


def _metadata(job: Export, plan: ExportPlan, written: dict[str, Written], index: dict[str, bytes]) -> Metadata:
    files = {name: size for part in written.values() for name, size in part.files.items()}
    files |= {name: len(data) for name, data in index.items()}
    linked = sum(part.linked for part in written.values())
    return Metadata(
        **msgspec.structs.asdict(plan),
        splits={name: _facts(part, written) for name, part in job.splits.items()},
        files=dict(sorted(files.items())),
        linked_bytes=linked,
        written_bytes=sum(files.values()) - linked,
        made_with=f"tokpress {tokpress.__version__}",
    )


def _facts(split: Store, written: dict[str, Written]) -> SplitFacts:
    mine = [part.note for part in written.values() if part.note.get("split") == split.split_name]
    rows = [note["rows"] for note in mine if "rows" in note]
    return SplitFacts(docs=split.num_docs, tokens=split.num_tokens, rows=sum(rows) if rows else None)
