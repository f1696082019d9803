"""`build --dry-run`: what a run would take, from a small piece of it.

In: a job. Out: the plan, the rate at which this machine reads and encodes a sample of the inputs, and from it time, disk and
memory for 1, 2, 4, ... workers. Nothing is written.
"""

from __future__ import annotations

from time import perf_counter

import msgspec

from tokpress.machine import usable_cores
from tokpress.records import STDIN
from tokpress.run.budget import MAX_BATCH_BYTES, PARENT_BYTES, READ_COST
from tokpress.run.messages import Job, Prepare, Prepared, Settings
from tokpress.run.plan import make_plan
from tokpress.run.worker import Worker
from tokpress.storage.base import Storage

_SAMPLE_BYTES = 24 * 10**6
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
    worker = Worker(job, storage)
    prepared = worker.prepare(Prepare())
    worker.configure(Settings(engine=prepared.parity.engine, batch_bytes=MAX_BATCH_BYTES, threads=1))
    plan = make_plan(job.inputs, job.config, prepared.info, prepared.frame)
    began = perf_counter()
    sampled = worker.sample([unit for unit in plan.units if job.inputs[unit[0].input].path != STDIN], _SAMPLE_BYTES)
    seconds = max(perf_counter() - began, 1e-9)
    total = sum(source.size for source in job.inputs)
    scale = total / max(sampled.input_bytes, 1)
    tokens, docs = round(sampled.tokens * scale), round(sampled.docs * scale)
    rate = sampled.input_bytes / seconds
    cores = usable_cores()
    cost = READ_COST + prepared.memory_per_byte
    counts = sorted({2**power for power in range(cores.bit_length())} | {cores, 2 * cores})
    return prepared, Projection(
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
