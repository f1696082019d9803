"""Records straight to documents: read, rendered, encoded and shaped as a worker does it, but in one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.batches import DocumentBatch, TextBatch
from tokpress.config import BuildConfig
from tokpress.documents.base import Rendered
from tokpress.documents.frame import frame_for
from tokpress.documents.shape import Shaper
from tokpress.documents.templates import reading
from tokpress.engines.base import Engine
from tokpress.engines.load import fast_engine, load_files, reference_engine
from tokpress.options import build_config
from tokpress.records import Input, Reject
from tokpress.run.messages import Job
from tokpress.sources.fields import JsonFields

INPUT = Input(path="a.jsonl", format="jsonl", size=0, mtime_ns=0)
Shape = Callable[[Sequence[Any]], tuple[DocumentBatch, list[Reject]]]


def job_for(tokenizer: str | Path, **options: Any) -> Job:
    config = build_config(tokenizer, options)  # type: ignore[arg-type]
    return Job(url="nowhere", config=config, inputs=[INPUT], files=load_files(config.tokenizer))


def engine_for(job: Job, *, fast: bool = False) -> Engine:
    policy = job.config.tokenizer.special_tokens
    reference = reference_engine(job.files, policy)
    return fast_engine("gigatoken", job.files, policy, reference) if fast else reference


def batch_of(config: BuildConfig, records: Sequence[Any]) -> TextBatch:
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    found = JsonFields(reading(config)).parse(lines)
    return TextBatch(
        text=found.text,
        positions=np.arange(len(records), dtype=np.int64),
        sources=np.zeros(len(records), np.int32),
        input=0,
        next_position=len(records),
        kept=found.kept,
    )


def shaper_for(job: Job, engine: Engine) -> Shaper:
    frame = frame_for(job.config.tokenizer, engine.info)
    return Shaper(job.config, job.inputs, job.files, frame, engine)


def rendered(tokenizer: str | Path, records: Sequence[Any], **options: Any) -> Rendered:
    job = job_for(tokenizer, **options)
    return shaper_for(job, engine_for(job)).render(batch_of(job.config, records), 10**9)


def shape(tokenizer: str | Path, *, fast: bool = False, **options: Any) -> Shape:
    """A function from records to documents and rejects."""
    job = job_for(tokenizer, **options)
    engine = engine_for(job, fast=fast)
    shaper = shaper_for(job, engine)

    def run(records: Sequence[Any]) -> tuple[DocumentBatch, list[Reject]]:
        rendered = shaper.render(batch_of(job.config, records), 10**9)
        return shaper.shape(rendered, engine.encode(rendered.batch.text))

    return run


def masked(docs: DocumentBatch, i: int) -> tuple[list[int], list[int]]:
    """Ids and mask of a document."""
    part = docs.part(i, i + 1)
    assert part.mask is not None
    return part.tokens.ids.tolist(), part.mask.tolist()
