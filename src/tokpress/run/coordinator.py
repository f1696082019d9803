"""The whole build: find the inputs, prove the engine, run what is left to do, seal the store.

In: what a user named and a `BuildConfig`. Out: a finished `Store`. Run again it goes on where it was stopped: a shard exists
when its receipt exists, a store when its manifest does.
"""

from __future__ import annotations

import os
import pstats
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Protocol

import msgspec

from tokpress.config import BuildConfig, reject_limit
from tokpress.engines.framing import frame_for
from tokpress.engines.load import load_files
from tokpress.engines.table import engine_names
from tokpress.errors import NotEnoughMemory, UsageError
from tokpress.run import output
from tokpress.run.budget import Budget, cpu_sets, plan_budget, usable_cores
from tokpress.run.job import PROFILE_PART, Advanced, Done, Job, Prepared, Settings, Task, WorkerView
from tokpress.run.local import LocalWorkers
from tokpress.run.plan import default_unit_bytes, make_plan, val_below_of
from tokpress.run.progress import Reporter
from tokpress.run.seal import seal_store
from tokpress.run.splits import VAL, check_split, threshold_for
from tokpress.run.tally import Tally
from tokpress.sources.base import STDIN, Input
from tokpress.sources.files import discover
from tokpress.store.lock import StoreLock
from tokpress.store.manifest import Plan, Slice, read_manifest
from tokpress.store.reader import Store
from tokpress.templates.load import check_template, load_template, reading

SMALL_BYTES = 32 * 10**6  # encoded before a process would have started


class Executor(Protocol):
    """Where units are run: inside this process, in local processes."""

    @property
    def count(self) -> int: ...

    @property
    def peak_bytes(self) -> int: ...

    def prepare(self) -> Prepared: ...

    def configure(self, settings: Settings, budget: Budget) -> None: ...

    def run(
        self,
        tasks: Sequence[Task],
        heard: Callable[[int, Advanced], None],
        watched: Callable[[list[WorkerView]], None],
    ) -> Iterator[Done]: ...


def build_store(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    config: BuildConfig,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Store:
    reporter = reporter or Reporter()
    job = make_job(inputs, out, config)
    directory, found = job.directory, job.inputs
    with StoreLock(directory):
        old = None if overwrite else output.stored_plan(directory)
        if old is not None and old.tokenizer.fingerprint == job.files.fingerprint:
            # The tokenizer is known: what else differs, or that all is done, can be said before it is loaded.
            frame = frame_for(config.tokenizer, old.tokenizer)
            output.check_same_plan(directory, make_plan(found, config, old.tokenizer, frame, val_below_of(old)))
            if output.is_finished(directory):
                reporter.already_finished(directory)
                return Store(directory, read_manifest(directory))
        return _run_with_fewer_and_fewer(job, reporter, overwrite=overwrite, resuming=old is not None)


def make_job(inputs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], config: BuildConfig) -> Job:
    """What is to be done, after all that can be checked without reading text was checked."""
    check_options(config, [os.fspath(argument) for argument in inputs])
    output.check_output(Path(out))
    found = [*discover(inputs, reading(config)), *_val_inputs(inputs, config)]
    files = load_files(config.tokenizer)
    load_template(config.template, files, None, found)  # what is wrong with it is said now
    return Job(directory=Path(out), config=config, inputs=found, files=files)


def _val_inputs(inputs: Sequence[str | os.PathLike[str]], config: BuildConfig) -> list[Input]:
    if not config.split.val_inputs:
        return []
    read = reading(config)
    both = [*inputs, *config.split.val_inputs]
    val = discover(config.split.val_inputs, read)
    if len(discover(both, read)) < len(discover(inputs, read)) + len(val):
        raise UsageError("a file is named as an input and with --val-inputs, too. It can be in one split only.")
    return [msgspec.structs.replace(source, split=VAL) for source in val]


def _run_with_fewer_and_fewer(job: Job, reporter: Reporter, *, overwrite: bool, resuming: bool) -> Store:
    """Runs the job; where a record does not fit beside so many workers, goes on with half as many."""
    peak_bytes = 0
    while True:
        with _executor(job, resuming=resuming) as executor:
            tally = Tally(job.config.check.max_rejects, reporter, peak_bytes)
            try:
                return _run(job, executor, tally, reporter, overwrite=overwrite)
            except NotEnoughMemory as error:
                if executor.count == 1:
                    raise
                reporter.too_many_workers(error, fewer=executor.count // 2)
            peak_bytes = max(peak_bytes, executor.peak_bytes)
            resources = msgspec.structs.replace(job.config.resources, workers=executor.count // 2)
        job = replace(job, config=msgspec.structs.replace(job.config, resources=resources))
        overwrite, resuming = False, True


def _run(job: Job, executor: Executor, tally: Tally, reporter: Reporter, *, overwrite: bool) -> Store:
    directory, config = job.directory, job.config
    prepared = executor.prepare()
    reporter.prepared(job.inputs, prepared.info, prepared.frame)
    reporter.proved(prepared.parity)
    if prepared.first_document is not None:
        reporter.first_document(prepared.first_document)

    old = None if overwrite else output.stored_plan(directory)
    val_below = threshold_for(config, job.inputs) if old is None else val_below_of(old)
    plan = make_plan(job.inputs, config, prepared.info, prepared.frame, val_below)
    if old is None:
        output.begin(directory, plan, job.files)
    output.check_same_plan(directory, plan)
    output.furnish(directory, job.files)
    receipts = output.read_receipts(directory)
    sizes = _unit_bytes(plan)
    tasks = sorted(output.remaining_tasks(plan, receipts), key=lambda task: -sizes[task.unit])
    tally.resumed(receipt for unit in receipts.values() for receipt in unit)
    if receipts:
        docs = sum(receipt.counts.written for unit in receipts.values() for receipt in unit)
        reporter.resuming(units=len(plan.units), units_left=len(tasks), docs=docs)

    resources = config.resources
    budget = plan_budget(
        resources.memory_bytes, resources.workers, prepared.footprint, len(tasks), prepared.memory_per_byte
    )
    cores = resources.workers or usable_cores()
    settings = Settings(
        engine=prepared.parity.engine,
        batch_bytes=resources.batch_bytes or budget.batch_bytes,
        threads=max(cores // budget.workers, 1),
        val_below=val_below,
        room=budget.room,
    )
    executor.configure(settings, budget)
    reporter.started(sum(sizes[task.unit] for task in tasks))
    started = perf_counter()
    try:
        for group in _in_order(tasks) if config.read.limit is not None else [tasks]:
            group = [_limited(task, config.read.limit, receipts) for task in group]
            for done in executor.run(group, tally.heard, reporter.watched):
                receipts[done.unit] = output.unit_receipts(directory, done.unit)
                tally.finished(done)
        tally.check_rejects()
    finally:
        reporter.stopped()
    if resources.profile:
        _join_profiles(Path(resources.profile))
    output.remove_strays(directory, receipts)
    facts = tally.facts(
        workers=budget.workers, threads=settings.threads, peak_bytes=executor.peak_bytes, started=started
    )
    manifest = seal_store(directory, plan, config, prepared.frame, receipts, prepared.parity, facts)
    reporter.finished(manifest)
    return Store(directory, manifest)


def _join_profiles(path: Path) -> None:
    parts = [str(part) for part in path.parent.glob(f"{path.name}{PROFILE_PART}*")]
    if parts:
        pstats.Stats(*parts).dump_stats(path)
    for part in parts:
        Path(part).unlink()


def _in_order(tasks: Sequence[Task]) -> list[list[Task]]:
    """One task after the other: which documents are the first N is known only when the units before are done."""
    return [[task] for task in sorted(tasks, key=lambda task: task.unit)]


def _limited(task: Task, limit: int | None, receipts: output.Receipts) -> Task:
    if limit is None:
        return task
    before = sum(receipt.counts.written for unit in range(task.unit + 1) for receipt in receipts.get(unit, []))
    return replace(task, limit=max(limit - before, 0))


def _executor(job: Job, *, resuming: bool) -> AbstractContextManager[Executor]:
    """No process for what is done before it would have started, nor for one worker that was asked for, nor for a pipe that
    only this one can read. A run that is continued always gets processes: the one before may have died of a document."""
    resources = job.config.resources
    small = resources.workers is None and sum(source.size for source in job.inputs) < SMALL_BYTES
    alone = small or resources.workers == 1
    if (alone and not resuming) or any(source.path == STDIN for source in job.inputs):
        from tokpress.run.inline import InlineWorker  # it brings all that a worker needs; else only workers load that

        return InlineWorker(job)
    count = min(resources.workers or usable_cores(), _most_units(job))
    return LocalWorkers(job, count, doc_timeout=resources.doc_timeout, pin=cpu_sets(resources.pin))


def _most_units(job: Job) -> int:
    """No more workers are started than there can be units."""
    unit_bytes = job.config.store.unit_bytes or default_unit_bytes(job.inputs)
    return len(job.inputs) + sum(source.size for source in job.inputs) // unit_bytes


def _unit_bytes(plan: Plan) -> list[int]:
    """About how much of the inputs each unit has to read."""
    pieces = Counter(piece.input for unit in plan.units for piece in unit)

    def size(piece: Slice) -> int:
        source = plan.inputs[piece.input]
        if source.has_rows:
            return source.size // pieces[piece.input]
        return (source.size if piece.stop is None else piece.stop) - piece.start

    return [sum(map(size, unit)) for unit in plan.units]


def check_options(config: BuildConfig, inputs: Sequence[str] = ()) -> None:
    """An option that makes no sense is an error now, not in an hour."""
    try:
        msgspec.convert(msgspec.to_builtins(config), BuildConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong option: {error}. See: tokpress build --help") from None
    if config.tokenizer.engine not in engine_names():
        raise UsageError(
            f"--engine {config.tokenizer.engine!r} is not known. Choose one of {', '.join(engine_names())}."
        )
    reject_limit(config.check.max_rejects, 0)
    sizes = {
        "--unit-size": config.store.unit_bytes,
        "--shard-size": config.store.shard_bytes,
        "--max-doc-bytes": config.read.max_doc_bytes,
        "--memory": config.resources.memory_bytes,
        "batch_bytes": config.resources.batch_bytes,
        "--workers": config.resources.workers,
    }
    for option, size in sizes.items():
        if size is not None and size < 1:
            raise UsageError(f"{option} is {size}, but must be at least 1. Leave it out for the default.")
    check_template(config.template)
    check_split(config.split, [*inputs, *config.split.val_inputs])
    read = reading(config)
    named = [*([read.text_field] if read.kind == "text" else []), *read.required, *config.read.keep]
    if len(set(named)) < len(named):
        raise UsageError("--keep names a field twice, or the text itself. Name each field to keep once.")
    if not 0 <= config.check.audit_rate <= 1:
        raise UsageError(f"--audit-rate is {config.check.audit_rate}, but must be a share between 0 and 1.")
