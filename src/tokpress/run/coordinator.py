"""The whole build: find the inputs, prove the engine, run what is left to do, seal the store.

In: what a user named and a `BuildConfig`. Out: a finished `Store`. Run again it goes on where it was stopped: a shard exists
when its receipt exists, a store when its manifest does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter, time

import msgspec

import tokpress
from tokpress.config import BuildConfig, reject_limit
from tokpress.documents.frame import Frame, frame_for
from tokpress.documents.splits import VAL, check_split, threshold_for
from tokpress.documents.templates import check_template, load_template, reading
from tokpress.engines.load import load_files
from tokpress.engines.table import engine_names
from tokpress.errors import NotEnoughMemory, StoreError, UsageError
from tokpress.machine import cpu_sets, usable_cores
from tokpress.options import check_bounds
from tokpress.records import STDIN, Input, Parity, Plan, RunFacts
from tokpress.run import events
from tokpress.run.budget import Budget, plan_budget, run_memory
from tokpress.run.clusters.base import Cluster
from tokpress.run.clusters.processes import ProcessCluster
from tokpress.run.events import Listener, Quiet, Reporter, Timed, join
from tokpress.run.member import Member
from tokpress.run.messages import Job, Settings
from tokpress.run.plan import as_planned, default_unit_bytes, make_plan, unit_bytes, val_below_of
from tokpress.run.profiles import join_profiles
from tokpress.run.scheduler import Scheduler
from tokpress.run.share import Share
from tokpress.run.shared import Attempt, find_run
from tokpress.run.status import check_all_done
from tokpress.run.tally import Tally
from tokpress.run.tasks import limited, one_by_one, remaining_tasks
from tokpress.sources.files import check_unchanged, discover
from tokpress.sources.opening import is_inherited
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.store import unfinished
from tokpress.store.manifest import create_manifest, read_manifest
from tokpress.store.reader import Store
from tokpress.store.recheck import fitting
from tokpress.store.seal import seal_store

SMALL_BYTES = 32 * 10**6  # one worker is enough
# Inputs up to this size are encoded inside this process, where nobody can stop a document that hangs or kills the tokenizer:
# none. Tests, for which thousands of tiny stores are built, say otherwise.
INSIDE_BYTES = 0


def build_store(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | Storage,
    config: BuildConfig,
    *,
    overwrite: bool = False,
    seal: bool = False,
    reporter: Listener | None = None,
) -> Store:
    """`seal`: no unit is to be left."""
    storage = open_storage(out)
    told = Timed(join(reporter or Quiet()))
    told.on(events.Began(started_at=time(), store=storage.url, version=tokpress.__version__))
    try:
        return _build(inputs, storage, config, told, overwrite=overwrite, seal=seal)
    except BaseException as error:  # also an interruption: whoever listens is to know that nothing follows
        told.on(events.Failed(error=type(error).__name__, message=str(error)))
        raise


def build_share(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | Storage,
    config: BuildConfig,
    share: Share,
    *,
    reporter: Listener | None = None,
) -> Attempt | None:
    """One machine's share of a build. None: the store is finished already."""
    storage = open_storage(out)
    told = Timed(join(reporter or Quiet()))
    told.on(events.Began(started_at=time(), store=storage.url, version=tokpress.__version__))
    try:
        return _build_share(inputs, storage, config, told, share)
    except BaseException as error:  # also an interruption: whoever listens is to know that nothing follows
        told.on(events.Failed(error=type(error).__name__, message=str(error)))
        raise


def _build(
    inputs: Sequence[str | os.PathLike[str]],
    storage: Storage,
    config: BuildConfig,
    reporter: Reporter,
    *,
    overwrite: bool,
    seal: bool,
) -> Store:
    if seal:
        check_all_done(storage)
    job = make_job(inputs, storage, config)
    reporter.on(events.InputsFound.of(job.inputs))
    if not overwrite and find_run(storage) is not None:
        return _finish(job, storage, reporter)
    with storage.lock():
        old = None if overwrite else unfinished.stored_plan(storage)
        job = msgspec.structs.replace(job, inputs=as_planned(job.inputs, old))
        if old is not None and old.tokenizer.fingerprint == job.files.fingerprint:
            # The tokenizer is known: what else differs, or that all is done, can be said before it is loaded.
            frame = frame_for(config.tokenizer, old.tokenizer)
            unfinished.check_same_plan(storage, make_plan(job.inputs, config, old.tokenizer, frame, val_below_of(old)))
            if unfinished.is_finished(storage):
                reporter.on(events.AlreadyFinished(store=storage.url))
                return Store(storage, read_manifest(storage))
        with _cluster(job, storage, resuming=old is not None) as cluster:
            return _seal(job, storage, _run(job, storage, cluster, reporter, old), reporter)


def _build_share(
    inputs: Sequence[str | os.PathLike[str]], storage: Storage, config: BuildConfig, reporter: Reporter, share: Share
) -> Attempt | None:
    if config.read.limit is not None:
        raise UsageError("--limit needs the units one after the other, and --share has them done by many. Choose one.")
    job = make_job(inputs, storage, config)
    reporter.on(events.InputsFound.of(job.inputs))
    if any(source.path == STDIN for source in job.inputs):
        raise UsageError(
            "standard input cannot be shared: only one process can read it. Name files, or leave --share out."
        )
    if unfinished.is_finished(storage):
        return None
    resuming = unfinished.stored_plan(storage) is not None
    with _cluster(job, storage, resuming=resuming) as cluster, Member(storage, share) as member:
        _run(job, storage, cluster, reporter, None, member)
        return member.attempt


def _finish(job: Job, storage: Storage, reporter: Reporter) -> Store:
    """What no share has done, and the manifest. Another machine may do the same: then one of them is first."""
    if not unfinished.is_finished(storage):
        try:
            with _cluster(job, storage, resuming=True) as cluster, Member(storage) as member:
                run = _run(job, storage, cluster, reporter, None, member)
                return _seal(job, storage, run, reporter, member)
        except (OSError, StoreError):
            if not unfinished.is_finished(storage):
                raise
    unfinished.end_run(storage)
    reporter.on(events.AlreadyFinished(store=storage.url))
    return Store(storage, read_manifest(storage))


def make_job(inputs: Sequence[str | os.PathLike[str]], storage: Storage, config: BuildConfig) -> Job:
    """What is to be done, after all that can be checked without reading text was checked."""
    check_options(config, [os.fspath(argument) for argument in inputs])
    unfinished.check_output(storage)
    out, named = storage.url, config.split.by_name
    found = [*discover(inputs, reading(config), out=out, named=named), *_val_inputs(inputs, config, out)]
    files = load_files(config.tokenizer)
    load_template(config.template, files, None, found)  # what is wrong with it is said now
    return Job(url=storage.url, config=config, inputs=found, files=files)


def _val_inputs(inputs: Sequence[str | os.PathLike[str]], config: BuildConfig, out: str) -> list[Input]:
    if not config.split.val_inputs:
        return []
    read = reading(config)
    both = [*inputs, *config.split.val_inputs]
    val = discover(config.split.val_inputs, read, out=out)
    if len(discover(both, read, out=out)) < len(discover(inputs, read, out=out)) + len(val):
        raise UsageError("a file is named as an input and with --val-inputs, too. It can be in one split only.")
    return [msgspec.structs.replace(source, split=VAL) for source in val]


@dataclass(frozen=True, slots=True)
class _Written:
    """A run at its end, before the manifest."""

    plan: Plan
    frame: Frame
    parity: Parity
    receipts: unfinished.Receipts
    facts: RunFacts


def _run(
    job: Job,
    storage: Storage,
    cluster: Cluster,
    reporter: Reporter,
    old: Plan | None,
    member: Member | None = None,
) -> _Written:
    """Writes all units that are left; as one of several machines (`member`), those that are its own."""
    config, resources = job.config, job.config.resources
    tally = Tally(member.most_rejects(config.check.most_rejects) if member else config.check.most_rejects, reporter)
    scheduler = Scheduler(
        cluster, storage, job.inputs, doc_timeout=resources.doc_timeout, memory_bytes=run_memory(resources.memory_bytes)
    )
    scheduler.start()
    prepared = scheduler.prepare()
    frame = prepared.frame
    reporter.on(
        events.TokenizerLoaded.of(prepared.info, dtype=frame.dtype.name, bos_id=frame.bos_id, eos_id=frame.eos_id)
    )
    reporter.on(events.Proved.of(prepared.parity))
    if prepared.first_document is not None:
        reporter.on(events.FirstDocument(**msgspec.structs.asdict(prepared.first_document)))

    val_below = threshold_for(config, job.inputs) if old is None else val_below_of(old)
    plan = make_plan(job.inputs, config, prepared.info, prepared.frame, val_below)
    sizes = unit_bytes(plan)
    parity, mine = prepared.parity, list(range(len(plan.units)))
    if member is not None:
        parity, mine = member.join(plan, prepared.parity, job.files, sizes)
    else:
        if old is None:
            unfinished.begin(storage, plan, job.files)
        unfinished.check_same_plan(storage, plan)
        unfinished.complete(storage, job.files)
    found = unfinished.read_receipts(storage, None if len(mine) == len(plan.units) else mine)
    receipts, lost = fitting(storage, found, config.check.check_receipts)
    if lost:
        reporter.on(events.ShardsLost(shards=lost))
    tasks = sorted(remaining_tasks(plan, receipts, mine), key=lambda task: -sizes[task.unit])
    tally.resumed(receipt for unit in receipts.values() for receipt in unit)
    if receipts:
        docs = sum(receipt.counts.written for unit in receipts.values() for receipt in unit)
        reporter.on(events.Resuming(units=len(mine), units_left=len(tasks), docs=docs))

    def settle(workers: int | None) -> tuple[Settings, Budget]:
        budget = plan_budget(resources.memory_bytes, workers, prepared.footprint, len(tasks), prepared.memory_per_byte)
        return Settings(
            engine=parity.engine,
            batch_bytes=resources.batch_bytes or budget.batch_bytes,
            threads=max((workers or usable_cores()) // budget.workers, 1),
            val_below=val_below,
            room=budget.room,
            run=member.run_id if member else None,
        ), budget

    def settle_for_fewer(workers: int, why: NotEnoughMemory) -> tuple[Settings, Budget]:
        reporter.on(events.FewerWorkers(workers=workers, why=str(why)))
        return settle(workers)

    def watched(workers: list[events.WorkerView]) -> None:
        reporter.on(events.Workers(workers=workers))

    scheduler.configure(*settle(resources.workers))
    reporter.on(
        events.Started(
            bytes=sum(sizes[task.unit] for task in tasks),
            units=len(tasks),
            workers=scheduler.count,
            threads=scheduler.threads,
        )
    )
    started = perf_counter()
    try:
        with member.draining(scheduler) if member else nullcontext():
            for group in one_by_one(tasks) if config.read.limit is not None else [tasks]:
                group = [limited(task, config.read.limit, receipts) for task in group]
                for done in scheduler.run(group, tally.heard, watched, receipts=receipts, configure=settle_for_fewer):
                    receipts[done.unit] = done.receipts
                    tally.finished(done)
                    if member is not None:
                        member.finished(done)
        tally.check_rejects()
    finally:
        reporter.on(events.Stopped())
    if resources.profile:
        join_profiles(resources.profile)
    facts = tally.facts(
        workers=scheduler.count, threads=scheduler.threads, peak_bytes=cluster.peak_bytes, started=started
    )
    facts = msgspec.structs.replace(facts, tokenizer=config.tokenizer.spec)
    return _Written(plan, frame, parity, receipts, facts)


def _seal(job: Job, storage: Storage, run: _Written, reporter: Reporter, member: Member | None = None) -> Store:
    """The manifest, and nothing that it does not speak for. With other machines what is left over goes last: before there is
    a manifest it may be another's."""
    for source in job.inputs:  # also one that changed after it was read: the store would be of something that is gone
        check_unchanged(source)
    seal = partial(seal_store, plan=run.plan, config=job.config, frame=run.frame, receipts=run.receipts)
    if member is None:
        unfinished.remove_strays(storage, run.receipts)
        manifest = seal(storage, parity=run.parity, run=run.facts)
    else:
        manifest = seal(member.storage, parity=run.parity, run=run.facts, write=create_manifest)
        if member.is_current:  # and was not replaced just now
            unfinished.end_run(storage)
            unfinished.remove_strays(storage, run.receipts)
    reporter.on(events.Finished.of(storage.url, manifest))
    return Store(storage, manifest)


def _cluster(job: Job, storage: Storage, *, resuming: bool) -> Cluster:
    """Processes, which can be watched: one is enough for little, and only one can read a pipe. Inside this process only what
    a caller made its standard input that no other process can read."""
    resources = job.config.resources
    size = sum(source.size for source in job.inputs)
    from_pipe = any(source.path == STDIN for source in job.inputs)
    inside = size < INSIDE_BYTES and resources.workers in (None, 1) and not resuming
    if inside or (from_pipe and not is_inherited(sys.stdin)):
        from tokpress.run.clusters.inline import (
            InlineCluster,  # it brings all that a worker needs; else only workers do
        )

        return InlineCluster(job, storage)
    alone = from_pipe or (resources.workers is None and size < SMALL_BYTES)
    count = 1 if alone else min(resources.workers or usable_cores(), _most_units(job))
    return ProcessCluster(job, count, pin=cpu_sets(resources.pin))


def _most_units(job: Job) -> int:
    """No more workers are started than there can be units."""
    unit_bytes = job.config.store.unit_bytes or default_unit_bytes(job.inputs)
    return len(job.inputs) + sum(source.size for source in job.inputs) // unit_bytes


def check_options(config: BuildConfig, inputs: Sequence[str] = ()) -> None:
    """An option that makes no sense is an error now, not in an hour."""
    try:
        msgspec.convert(msgspec.to_builtins(config), BuildConfig)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        name = where.rstrip("`").rpartition(".")[2]
        raise UsageError(f"{name or 'an option'} cannot be that: {what}. See: tokpress build --help") from None
    if config.tokenizer.engine not in engine_names():
        raise UsageError(
            f"--engine {config.tokenizer.engine!r} is not known. Choose one of {', '.join(engine_names())}."
        )
    reject_limit(config.check.max_rejects, 0)
    check_bounds(config)
    check_template(config.template)
    check_split(config.split, [*inputs, *config.split.val_inputs])
    read = reading(config)
    named = [*([read.text_field] if read.kind == "text" else []), *read.required, *config.read.keep]
    if len(set(named)) < len(named):
        raise UsageError("--keep names a field twice, or the text itself. Name each field to keep once.")
