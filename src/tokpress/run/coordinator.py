"""The whole build: find the inputs, prove the engine, run every unit, seal the store.

In: what a user named and a `BuildConfig`. Out: a finished `Store`. The manifest is written last: no manifest, no store.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import pyarrow as pa

from tokpress.batches import TextBatch, TokenBatch, text_bytes
from tokpress.config import BuildConfig, TokenizerConfig, reject_limit
from tokpress.engines.base import Engine, TokenizerFiles
from tokpress.engines.framing import Frame, frame_for
from tokpress.engines.load import FAST_KINDS, fast_engine, load_files, reference_engine
from tokpress.engines.parity import Auditor, Parity, check_parity
from tokpress.errors import ParityError, StoreError, TokenizerError, TooManyRejects, UsageError
from tokpress.run.plan import make_plan
from tokpress.run.progress import FirstDocument, Reporter, StageClock
from tokpress.run.worker import UnitResult, Worker
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts
from tokpress.store.durable import file_checksum, sync_directory, write_file
from tokpress.store.manifest import (
    MANIFEST,
    PLAN,
    REJECTS,
    SHARDS,
    TOKENIZER,
    Audit,
    Counts,
    FileEntry,
    Manifest,
    Plan,
    Split,
    encode,
    read_record,
    write_manifest,
)
from tokpress.store.reader import Store

_SAMPLE_BYTES = 512 * 1024  # a third of a second of the reference's time
_SAMPLE_DOC_BYTES = 32 * 1024
_SHOWN_TOKENS = 12
_RECORDS_BEFORE_REJECTS_COUNT = 1000


def build_store(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    config: BuildConfig,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Store:
    reporter = reporter or Reporter()
    began = perf_counter()
    check_options(config)
    directory = Path(out)
    check_output(directory, overwrite=overwrite)
    found = discover(inputs, config.read)
    files = load_files(config.tokenizer)
    reference = reference_engine(files, config.tokenizer.special_tokens)
    frame = frame_for(config.tokenizer, reference.info)
    reporter.prepared(found, reference.info, frame)
    sample = list(sample_texts(found, config.read, total_bytes=_SAMPLE_BYTES, max_doc_bytes=_SAMPLE_DOC_BYTES))
    engine, parity = choose_engine(files, config.tokenizer, reference, sample)
    reporter.proved(parity)
    if sample:
        reporter.first_document(_first_document(sample[0][:1], reference, frame))

    plan = make_plan(found, config, reference.info, frame)
    prepare_output(directory, plan, files)
    audit_rate = config.check.audit_rate if engine is not reference else 0.0
    worker = Worker(
        directory=directory,
        plan=plan,
        read=config.read,
        engine=engine,
        frame=frame,
        auditor=Auditor(engine, reference, audit_rate) if audit_rate else None,
        threads=config.resources.workers or len(os.sched_getaffinity(0)),
        batch_bytes=config.resources.batch_bytes,
        shard_bytes=config.store.shard_bytes,
        clock=StageClock(),
    )
    tally = _Tally(config.check.max_rejects, directory / REJECTS, reporter)
    reporter.started(sum(source.size for source in found))
    try:
        results = [worker.run(unit, tally.add) for unit in range(len(plan.units))]
        tally.check_rejects()
    finally:
        reporter.stopped()
    audit = Audit(rate=audit_rate, docs=0, bytes=0)
    if worker.auditor is not None:
        audit = Audit(rate=audit_rate, docs=worker.auditor.docs, bytes=worker.auditor.bytes)
    run = _run_facts(perf_counter() - began, tally, worker)
    manifest = seal(directory, plan, config, frame, results, parity, audit, run)
    reporter.finished(manifest)
    return Store(directory, manifest)


def choose_engine(
    files: TokenizerFiles, config: TokenizerConfig, reference: Engine, sample: Sequence[pa.LargeStringArray]
) -> tuple[Engine, Parity]:
    """The fast engine if it is asked for or allowed, supported and proved equal; else the reference."""
    asked = config.engine
    if asked not in ("auto", "gigatoken", reference.name):
        raise TokenizerError(
            f"--engine {asked} cannot be used for a {reference.name} tokenizer. Use --engine auto, or {reference.name}."
        )
    if asked == reference.name or (asked == "auto" and files.kind not in FAST_KINDS):
        return reference, Parity(outcome="not-needed", engine=reference.name, reference=reference.name)
    try:
        fast = fast_engine(files, config.special_tokens, reference.info)
    except TokenizerError as error:
        if asked == "gigatoken":
            raise
        detail = str(error)
        return reference, Parity(outcome="unsupported", engine=reference.name, reference=reference.name, detail=detail)
    parity = check_parity(fast, reference, sample)
    if parity.outcome == "equal":
        return fast, parity
    if asked == "gigatoken":
        raise ParityError(
            f"gigatoken and {reference.name} encode this tokenizer differently: {parity.difference}. "
            f"Use the reference: --engine {reference.name}"
        )
    return reference, parity


def check_options(config: BuildConfig) -> None:
    """An option that makes no sense is an error now, not in an hour."""
    try:
        msgspec.convert(msgspec.to_builtins(config), BuildConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong option: {error}. See: tokpress build --help") from None
    reject_limit(config.check.max_rejects, 0)
    sizes = {
        "--unit-size": config.store.unit_bytes,
        "--shard-size": config.store.shard_bytes,
        "--max-doc-bytes": config.read.max_doc_bytes,
        "batch_bytes": config.resources.batch_bytes,
    }
    for option, size in sizes.items():
        if size < 1:
            raise UsageError(f"{option} is {size}, but must be at least one byte. Leave it out for the default.")
    if not 0 <= config.check.audit_rate <= 1:
        raise UsageError(f"--audit-rate is {config.check.audit_rate}, but must be a share between 0 and 1.")
    if config.resources.workers is not None and config.resources.workers < 1:
        raise UsageError(
            f"--workers is {config.resources.workers}, but must be at least 1. Leave it out for all cores."
        )


def check_output(directory: Path, *, overwrite: bool) -> None:
    """Refuses to write where something else is."""
    if _is_store(directory) and (directory / MANIFEST).is_file() and not overwrite:
        raise UsageError(
            f"{directory} already holds a finished store. Look at it: tokpress inspect {directory}. "
            "To build it again add --overwrite, or choose another --out."
        )
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--out {directory} is a file. Choose a directory that does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()) and not _is_store(directory):
        raise UsageError(f"--out {directory} is not empty and not a store. Choose a directory that does not exist yet.")


def _is_store(directory: Path) -> bool:
    """Whether a plan or a manifest there is ours: only then may what stands beside it be replaced."""
    for name, kind in ((PLAN, Plan), (MANIFEST, Manifest)):
        try:
            read_record(directory / name, kind)
        except StoreError:
            continue
        return True
    return False


def prepare_output(directory: Path, plan: Plan, files: TokenizerFiles) -> None:
    """An empty store with its plan. What an earlier, unfinished run left is removed: manifest first, plan last."""
    if (directory / MANIFEST).exists():
        (directory / MANIFEST).unlink()
        sync_directory(directory)
    for name in (SHARDS, REJECTS, TOKENIZER):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir(parents=True)
    write_file(directory / PLAN, encode(plan))
    for name, data in files.files.items():
        write_file(directory / TOKENIZER / name, data)


def _first_document(text: pa.LargeStringArray, reference: Engine, frame: Frame) -> FirstDocument:
    ids = frame.apply(reference.encode(text)).ids
    if len(ids) <= 2 * _SHOWN_TOKENS:
        return FirstDocument(head=reference.decode(ids), tail="", tokens=len(ids))
    return FirstDocument(
        head=reference.decode(ids[:_SHOWN_TOKENS]), tail=reference.decode(ids[-_SHOWN_TOKENS:]), tokens=len(ids)
    )


class _Tally:
    """Counts as the run goes, tells the reporter, and stops the run above the limit of rejects."""

    def __init__(self, max_rejects: str, rejects: Path, reporter: Reporter) -> None:
        self._max_rejects = max_rejects
        self._rejects = rejects
        self._reporter = reporter
        self.input_bytes = self.text_bytes = self.docs = self.tokens = self.rejects = 0

    def add(self, batch: TextBatch, tokens: TokenBatch) -> None:
        rejects = sum(reject.records for reject in batch.rejects)
        self.input_bytes += batch.input_bytes
        self.text_bytes += text_bytes(batch.text)
        self.docs += len(tokens)
        self.tokens += len(tokens.ids)
        self.rejects += rejects
        self._reporter.advanced(
            input_bytes=batch.input_bytes, docs=len(tokens), tokens=len(tokens.ids), rejects=rejects
        )
        if self.docs + self.rejects >= _RECORDS_BEFORE_REJECTS_COUNT:
            self.check_rejects()

    def check_rejects(self) -> None:
        read = self.docs + self.rejects
        if self.rejects > reject_limit(self._max_rejects, read):
            raise TooManyRejects(
                f"{self.rejects:,} of {read:,} records were rejected, more than --max-rejects {self._max_rejects} allows. "
                f"Look at them in {self._rejects}; raise the limit, or mend the inputs, and build again."
            )


def _run_facts(seconds: float, tally: _Tally, worker: Worker) -> dict[str, Any]:
    packages = ("tokpress", "gigatoken", "tokenizers", "sentencepiece", "tiktoken", "pyarrow", "numpy")
    return {
        "seconds": round(seconds, 3),
        "input_bytes": tally.input_bytes,
        "text_bytes": tally.text_bytes,
        "input_mb_per_s": round(tally.input_bytes / 1e6 / seconds, 2),
        "tokens_per_s": round(tally.tokens / seconds),
        "stage_seconds": {stage: round(spent, 3) for stage, spent in worker.clock.seconds.items()},
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "threads": worker.threads,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def seal(
    directory: Path,
    plan: Plan,
    config: BuildConfig,
    frame: Frame,
    results: Sequence[UnitResult],
    parity: Parity,
    audit: Audit,
    run: dict[str, Any],
) -> Manifest:
    shards = [receipt for result in results for receipt in result.receipts]
    units = [result.counts for result in results]
    split = Split(
        docs=sum(receipt.docs for receipt in shards), tokens=sum(receipt.tokens for receipt in shards), shards=shards
    )
    manifest = Manifest(
        tokenizer=plan.tokenizer,
        dtype=frame.dtype.name,
        bos_id=frame.bos_id,
        eos_id=frame.eos_id,
        special_tokens=config.tokenizer.special_tokens,
        splits={"train": split},
        units=units,
        totals=sum(units, Counts()),
        rejects=dict(sorted(sum((result.rejects for result in results), Counter[str]()).items())),
        parity=parity,
        audit=audit,
        files=_other_files(directory),
        run=run,
    )
    return write_manifest(directory, manifest)


def _other_files(directory: Path) -> dict[str, FileEntry]:
    """Everything but the token files, which the receipts cover, and the manifest, which covers itself."""
    paths = [directory / PLAN, *sorted((directory / TOKENIZER).iterdir()), *sorted((directory / REJECTS).iterdir())]
    paths += sorted((directory / SHARDS).glob("*.json"))
    return {
        path.relative_to(directory).as_posix(): FileEntry(path.stat().st_size, file_checksum(path)) for path in paths
    }
