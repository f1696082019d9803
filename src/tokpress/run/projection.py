"""`build --dry-run`: what a run would take, from a small piece of it.

In: a job. Out: the plan, the rate at which this machine reads and encodes a sample of the inputs, and from it time, disk and
memory for 1, 2, 4, ... workers. The one worker that does it is watched as it would be in the run. Nothing is written: which
documents do the tokenizer harm is kept in memory.
"""

from __future__ import annotations

import msgspec

from tokpress.errors import UsageError
from tokpress.machine import usable_cores
from tokpress.records import STDIN, Plan
from tokpress.run.budget import MAX_BATCH_BYTES, PARENT_BYTES, READ_COST, plan_budget, run_memory
from tokpress.run.clusters.base import Cluster
from tokpress.run.coordinator import cluster_for
from tokpress.run.messages import Advanced, Done, Job, Prepared, Settings, Task
from tokpress.run.plan import make_plan
from tokpress.run.scheduler import Scheduler
from tokpress.storage.base import Storage
from tokpress.storage.memory import MemoryStorage

_SAMPLE_BYTES = 24 * 10**6
_SAMPLE_UNITS = 8  # that it is read from the beginnings of
_WORKER_START_SECONDS = 2.0


class ForWorkers(msgspec.Struct, frozen=True, kw_only=True):
    workers: int
    seconds: float
    memory_bytes: int


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    inputs: int
    input_bytes: int
    units: int
    sampled_bytes: int
    input_mb_per_s: float  # one worker
    docs: int
    tokens: int
    disk_bytes: int
    workers: list[ForWorkers]


def project(job: Job, storage: Storage) -> tuple[Prepared, Projection]:
    """Encodes the beginnings of a few units and extrapolates. Raises what the run itself would raise at its start."""
    if any(source.path == STDIN for source in job.inputs):
        raise UsageError(
            "--dry-run cannot look into standard input: what it read would be gone for the build, and how much there is "
            "cannot be known. Write the input, or the beginning of it, to a file and name that."
        )
    with cluster_for(job, storage, most=1) as cluster:
        prepared, plan, done, sampled = _sampled(job, cluster)
    return prepared, _projection(job, plan, prepared, sampled, _seconds(done))


def _sampled(job: Job, cluster: Cluster) -> tuple[Prepared, Plan, list[Done], Advanced]:
    resources = job.config.resources
    scheduler = Scheduler(
        cluster,
        MemoryStorage(),
        job.inputs,
        doc_timeout=resources.doc_timeout,
        memory_bytes=run_memory(resources.memory_bytes),
    )
    scheduler.start()
    prepared = scheduler.prepare()
    plan = make_plan(job.inputs, job.config, prepared.info, prepared.frame)
    budget = plan_budget(resources.memory_bytes, 1, prepared.footprint, len(plan.units), prepared.memory_per_byte)
    scheduler.configure(
        Settings(
            engine=prepared.parity.engine,
            batch_bytes=resources.batch_bytes or budget.batch_bytes,
            threads=1,
            room=budget.room,
        ),
        budget,
    )
    heard: list[Advanced] = []  # also what a worker that died is heard of, which is taken back again
    done = list(scheduler.run(_looks(plan), lambda _, advanced: heard.append(advanced), lambda _: None))
    return prepared, plan, done, sum(heard, Advanced())


def _looks(plan: Plan) -> list[Task]:
    """At units spread over all."""
    count = len(plan.units)
    look_bytes = _SAMPLE_BYTES // min(max(count, 1), _SAMPLE_UNITS)
    return [
        Task(unit=number, slices=plan.units[number], look_bytes=look_bytes)
        for number in range(0, count, max(count // _SAMPLE_UNITS, 1))
    ]


def _seconds(done: list[Done]) -> float:
    """Of work: what a worker that died took is not in it, nor how long it took to be sure of that."""
    return max(sum(sum(unit.stage_seconds.values()) for unit in done), 1e-9)


def _projection(job: Job, plan: Plan, prepared: Prepared, sampled: Advanced, seconds: float) -> Projection:
    total = sum(source.size for source in job.inputs)
    scale = total / max(sampled.input_bytes, 1)
    tokens, docs = round(sampled.tokens * scale), round(sampled.docs * scale)
    rate = max(sampled.input_bytes, 1) / seconds
    cores = usable_cores()
    cost = READ_COST + prepared.memory_per_byte
    counts = sorted({2**power for power in range(cores.bit_length())} | {cores, 2 * cores})
    return Projection(
        inputs=len(job.inputs),
        input_bytes=total,
        units=len(plan.units),
        sampled_bytes=sampled.input_bytes,
        input_mb_per_s=round(rate / 1e6, 1),
        docs=docs,
        tokens=tokens,
        disk_bytes=tokens * (prepared.frame.dtype.itemsize + int(job.config.template.has_mask)) + 16 * docs,
        workers=[
            ForWorkers(
                workers=count,
                seconds=round(_WORKER_START_SECONDS + total / (rate * min(count, cores, len(plan.units))), 1),
                memory_bytes=PARENT_BYTES + count * (prepared.footprint + cost * MAX_BATCH_BYTES),
            )
            for count in counts
        ],
    )
