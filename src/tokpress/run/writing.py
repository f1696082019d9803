"""Units -> shards, and shards -> a store.

In: a job, and a cluster that runs workers. Out: all units that are left, written, with their receipts; then the manifest.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import msgspec

from tokpress.documents.frame import Frame
from tokpress.documents.rejects import nothing_written
from tokpress.documents.splits import threshold_for
from tokpress.errors import NotEnoughMemory
from tokpress.machine import usable_cores
from tokpress.records import Parity, Plan, Reject, RunFacts
from tokpress.run import events
from tokpress.run.budget import Budget, check_memory, plan_budget, run_memory
from tokpress.run.clusters.base import Cluster
from tokpress.run.events import Reporter
from tokpress.run.member import Member
from tokpress.run.messages import Job, Settings
from tokpress.run.plan import make_plan, unit_bytes, val_below_of
from tokpress.run.profiles import join_profiles
from tokpress.run.scheduler import Scheduler
from tokpress.run.tally import Tally
from tokpress.run.tasks import limited, one_by_one, remaining_tasks
from tokpress.sources.files import check_unchanged
from tokpress.sources.jsonl import first_fields
from tokpress.storage.base import Storage
from tokpress.store import unfinished
from tokpress.store.manifest import create_manifest
from tokpress.store.reader import Store
from tokpress.store.receipts import Receipts, read_receipts
from tokpress.store.recheck import fitting
from tokpress.store.seal import seal_store


@dataclass(frozen=True, slots=True)
class Written:
    """A run at its end, before the manifest."""

    plan: Plan
    frame: Frame
    parity: Parity
    receipts: Receipts
    facts: RunFacts
    examples: list[Reject]  # the first rejects


def write_units(
    job: Job,
    storage: Storage,
    cluster: Cluster,
    reporter: Reporter,
    old: Plan | None,
    member: Member | None = None,
) -> Written:
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
            check_memory(
                resources.memory_bytes, prepared.footprint, prepared.memory_per_byte
            )  # before anything is written
            unfinished.begin(storage, plan, job.files)
        unfinished.check_same_plan(storage, plan)
        unfinished.complete(storage, job.files)
    if not unfinished.keeps_conditions(storage, shared=member is not None and member.has_others):
        reporter.on(events.NoConditions(store=storage.url))
    writable = storage if member is None else member.storage
    found = read_receipts(writable, None if len(mine) == len(plan.units) else mine)
    receipts, lost = fitting(writable, found, config.check.check_receipts)
    if lost:
        reporter.on(events.ShardsLost(shards=lost))
    tasks = sorted(remaining_tasks(plan, receipts, mine), key=lambda task: -sizes[task.unit])
    tally.resumed(receipt for unit in receipts.values() for receipt in unit)
    if receipts:
        docs = sum(receipt.counts.written for unit in receipts.values() for receipt in unit)
        reporter.on(events.Resuming(units=len(mine), units_left=len(tasks), docs=docs))

    def settle(workers: int | None) -> tuple[Settings, Budget]:
        units = len(tasks) if member is None else member.num_units(len(tasks))
        budget = plan_budget(resources.memory_bytes, workers, prepared.footprint, units, prepared.memory_per_byte)
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

    settings, budget = settle(resources.workers)
    scheduler.configure(settings, budget)
    reporter.on(
        events.Started(
            bytes=sum(sizes[task.unit] for task in tasks),
            units=len(tasks),
            workers=scheduler.count,
            threads=scheduler.threads,
            memory_bytes=budget.memory_bytes,
        )
    )
    started = perf_counter()
    try:
        more = partial(member.more, scheduler, plan) if member else lambda: False
        with member.draining(scheduler) if member else nullcontext():
            for group in one_by_one(tasks) if config.read.limit is not None else [tasks]:
                group = [limited(task, config.read.limit, receipts) for task in group]
                for done in scheduler.run(
                    group, tally.heard, watched, receipts=receipts, configure=settle_for_fewer, more=more
                ):
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
    return Written(plan, frame, parity, receipts, facts, tally.examples)


def finish_store(job: Job, storage: Storage, run: Written, reporter: Reporter, member: Member | None = None) -> Store:
    """The manifest, and nothing that it does not speak for. With other machines what is left over goes last: before there is
    a manifest it may be another's."""
    for source in job.inputs:  # also one that changed after it was read: the store would be of something that is gone
        check_unchanged(source)
    _check_written(job, storage, run, alone=member is None)
    write = partial(seal_store, plan=run.plan, config=job.config, frame=run.frame, receipts=run.receipts)
    if member is None:
        unfinished.remove_strays(storage, run.receipts)
        manifest = write(storage, parity=run.parity, run=run.facts)
    else:
        manifest = write(member.storage, parity=run.parity, run=run.facts, write=create_manifest)
        if member.is_current:  # and was not replaced just now
            unfinished.end_run(storage)
            unfinished.remove_strays(storage, run.receipts)
    reporter.on(events.Finished.of(storage.url, manifest))
    return Store(storage, manifest)


def _check_written(job: Job, storage: Storage, run: Written, *, alone: bool) -> None:
    """A run in which nothing good was found is a failure, and must not stand in the way of the corrected command."""
    known = [receipt for unit in run.receipts.values() for receipt in unit]
    if job.config.read.limit == 0 or any(receipt.docs for receipt in known):
        return
    rejects = sum((Counter(receipt.rejects) for receipt in known), Counter[str]())
    if alone:
        unfinished.discard(storage)
    raise nothing_written(
        rejects.total(),
        run.examples,
        reasons=rejects,
        fields=first_fields(job.inputs[0]),
        where=", ".join(source.path for source in job.inputs[:3]) + (", ..." if len(job.inputs) > 3 else ""),
    )
