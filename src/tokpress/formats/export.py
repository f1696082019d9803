"""`tokpress.export`: a store as another trainer's files.

In: a store, a format, a directory. Out: that directory, whole, with a `metadata.json`. Parts are written by threads: the
work is linking and copying memory, which the interpreter's lock does not stop, and a process would take longer to start than
most exports take. A finished part has a receipt; run again, an export goes on with those that have none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Unpack

import msgspec

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.formats.base import Export, ExportOptions, Part, Written, check_options, open_format
from tokpress.formats.target import ExportPlan, Metadata, SplitFacts, Target
from tokpress.packing import PackingOptions
from tokpress.packing import check_options as check_packing
from tokpress.run.budget import usable_cores
from tokpress.store.durable import make_directory, sync_directory
from tokpress.store.lock import StoreLock
from tokpress.store.manifest import read_manifest
from tokpress.store.reader import Store

Progress = Callable[[int, int], None]  # bytes just done, and those of the whole export


def export(
    store: Store | str | os.PathLike[str],
    *,
    to: str,
    out: str | os.PathLike[str],
    split: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    max_length: int | None = None,
    method: str | None = None,
    dtype: str | None = None,
    merge: bool = False,
    copy: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    **packing: Unpack[PackingOptions],
) -> Metadata:
    """Writes the splits of a store (all of them, or those named) as files of another format into the directory `out`.

    `max_length` is `seq_len` with a document a row, as for supervised data. Called again, it goes on where it was stopped.
    """
    options = _options(to, seq_len=seq_len, max_length=max_length, method=method, dtype=dtype, merge=merge, copy=copy)
    job = _job(store, Path(out), options, split, dict(packing))
    plan = _plan(job)
    target = Target(job.final)
    job.final.parent.mkdir(parents=True, exist_ok=True)
    with StoreLock(target.work):
        finished = target.check(plan, overwrite=overwrite)
        if finished is None:
            finished = _run(job, plan, target, workers or usable_cores(), progress, overwrite=overwrite)
        target.tidy(plan)
    target.clean()
    return finished


def _options(
    to: str, *, seq_len: int | None, max_length: int | None, method: str | None, **others: Any
) -> ExportOptions:
    if max_length is not None:
        if seq_len is not None or method not in (None, "pad"):
            raise UsageError("--max-length N is --seq-len N with --method pad. Give the one or the other.")
        seq_len, method = max_length, "pad"
    form = open_format(to)
    if seq_len is not None and form.seq_len != "no":
        method = method or form.methods[0]
    return ExportOptions(to=to, splits=[], seq_len=seq_len, method=method, **others)


def _job(
    store: Store | str | os.PathLike[str],
    out: Path,
    options: ExportOptions,
    split: str | Sequence[str] | None,
    packing: dict[str, Any],
) -> Export:
    path = store.path if isinstance(store, Store) else Path(store)
    manifest = read_manifest(path)
    if packing and options.method:
        check_packing(options.method, packing)  # type: ignore[arg-type]
    names = list(manifest.splits) if split is None else [split] if isinstance(split, str) else list(split)
    if not names:
        raise StoreError(f"{path} has no split to export.")
    options = msgspec.structs.replace(options, splits=names, packing=packing)
    job = Export({name: Store(path, manifest, name) for name in names}, options, Path(out).absolute())
    check_options(job)
    if job.final == path.absolute() or path.absolute() in job.final.parents:
        raise UsageError(f"--out {out} is inside the store itself. Choose a directory beside it.")
    return job


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
    job: Export, plan: ExportPlan, target: Target, workers: int, progress: Progress | None, *, overwrite: bool
) -> Metadata:
    form = open_format(job.options.to)
    parts = form.parts(job)
    target.begin(plan, overwrite=overwrite)
    for split in job.splits if form.in_directories else []:
        make_directory(target.files / split)
    sync_directory(target.files)
    written = _write(parts, target, workers, progress)
    index = form.index(job, written)
    metadata = _metadata(job, plan, written, index)
    target.seal(metadata, index)
    return metadata


def _write(parts: list[Part], target: Target, workers: int, progress: Progress | None) -> dict[str, Written]:
    """Every part that has no receipt, by threads; all receipts, in the order of the parts."""
    lock = threading.Lock()
    total = sum(part.bytes for part in parts)

    def advance(count: int) -> None:
        if progress is not None:
            with lock:
                progress(count, total)

    written: dict[str, Written] = {}

    def write(part: Part) -> tuple[str, Written]:
        receipt = target.finished(part.name)
        if receipt is not None:
            advance(part.bytes)
        else:
            receipt = part.write(target.files, advance)
            target.finish(part.name, receipt)
        return part.name, receipt

    with ThreadPoolExecutor(max(min(workers, len(parts)), 1), thread_name_prefix="export") as pool:
        futures = [pool.submit(write, part) for part in parts]
        try:
            for future in as_completed(futures):
                written.update([future.result()])
        except BaseException:  # parts that are under way end, others do not begin
            pool.shutdown(cancel_futures=True)
            raise
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
