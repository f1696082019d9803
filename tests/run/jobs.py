"""Runs as the parts of this room see them: a store just begun, its plan, and a worker or two to write it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokpress.config import BuildConfig, CheckConfig, ReadConfig, StoreConfig, TokenizerConfig
from tokpress.documents.frame import frame_for
from tokpress.engines.load import load_files, reference_engine
from tokpress.records import REJECTS, SHARDS, Counts, FileEntry, Plan, Receipt
from tokpress.run.budget import Budget
from tokpress.run.clusters.base import Cluster
from tokpress.run.clusters.inline import InlineCluster
from tokpress.run.clusters.processes import ProcessCluster
from tokpress.run.gate import Room
from tokpress.run.messages import Job, Settings
from tokpress.run.plan import make_plan
from tokpress.run.scheduler import Scheduler
from tokpress.sources.files import discover
from tokpress.storage.local import LocalStorage, is_temporary
from tokpress.store import unfinished as output

SETTINGS = Settings(engine="bytes", batch_bytes=200, threads=1)


def begin(
    directory: Path, inputs: Sequence[Path], *, unit_bytes: int = 10**6, shard_bytes: int = 2000, **options: Any
) -> tuple[Job, Plan]:
    """A store of these inputs, with its plan and nothing else yet."""
    config = BuildConfig(
        tokenizer=TokenizerConfig(spec="bytes"),
        read=ReadConfig(**({"max_doc_bytes": 900} | options)),
        store=StoreConfig(unit_bytes=unit_bytes, shard_bytes=shard_bytes),
        check=CheckConfig(max_rejects="100%"),
    )
    files = load_files(config.tokenizer)
    info = reference_engine(files, "text").info
    job = Job(url=str(directory), config=config, inputs=discover(inputs, config.read), files=files)
    plan = make_plan(job.inputs, config, info, frame_for(config.tokenizer, info))
    directory.mkdir(parents=True, exist_ok=True)
    output.begin(LocalStorage(directory), plan, files)
    return job, plan


class Workers:
    """A scheduler and its cluster, entered and left together."""

    def __init__(self, job: Job, cluster: Cluster, *, doc_timeout: float = 60) -> None:
        self.cluster = cluster
        self.scheduler = Scheduler(cluster, LocalStorage(job.url), job.inputs, doc_timeout=doc_timeout)
        self.scheduler.start()
        self.prepare, self.configure, self.run = self.scheduler.prepare, self.scheduler.configure, self.scheduler.run

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: Any) -> None:
        self.cluster.__exit__(*error)


def in_processes(job: Job, count: int, *, doc_timeout: float, pin: Sequence[set[int]] = ()) -> Workers:
    return Workers(job, ProcessCluster(job, count, pin=pin), doc_timeout=doc_timeout)


def inline(job: Job) -> Workers:
    return Workers(job, InlineCluster(job, LocalStorage(job.url)))


def budget(workers: int, memory_bytes: int = 10**12) -> Budget:
    each = memory_bytes // workers
    room = Room(ordinary=each, share=each, most=each, budget=memory_bytes)
    return Budget(
        memory_bytes=memory_bytes, workers=workers, batch_bytes=SETTINGS.batch_bytes, worker_bytes=each, room=room
    )


def write_texts(path: Path, count: int, text: str = "document number {}") -> Path:
    path.write_text("".join(json.dumps({"text": text.format(i)}) + "\n" for i in range(count)))
    return path


def receipt(
    unit: int, number: int, *, then: tuple[int, int] | None = None, docs: int = 1, rejects: dict[str, int] | None = None
) -> Receipt:
    """What a worker says of a shard; `then` is where its unit goes on."""
    rejected = sum((rejects or {}).values())
    return Receipt(
        split="train",
        unit=unit,
        number=number,
        docs=docs,
        tokens=docs,
        max_id=1,
        files={extension: FileEntry(0, "0" * 16) for extension in ("bin", "ends", "pos")},
        sources=[(0, docs)],
        counts=Counts(read=docs + rejected, written=docs, rejected=rejected),
        rejects=rejects or {},
        audited=0,
        next_input=then[0] if then else None,
        next_position=then[1] if then else None,
    )


def shard_files(directory: Path) -> dict[str, bytes]:
    """Every shard, receipt and list of rejects, by path inside the store."""
    return {
        f"{folder}/{path.name}": path.read_bytes()
        for folder in (SHARDS, REJECTS)
        for path in (directory / folder).iterdir()
        if not is_temporary(path.name)  # of one that was killed: removed when the store is sealed
    }
