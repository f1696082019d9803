"""What each way of tokenizing costs a training step, here.

In: inputs, a tokenizer, the shape of a batch, how long a step takes. Out: a row for each way: one by one, in a batch, in
parallel, live, pre-tokenized; all on the same text, the beginning of the inputs cut into samples of `seq_len` tokens.
A step is a pause that leaves the processor free, as a step on a GPU does: what runs beside the loop has the cores to itself.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Unpack, cast

import msgspec
import pyarrow as pa

from tokpress.api import build
from tokpress.config import BuildConfig
from tokpress.engines.base import Engine
from tokpress.engines.load import load_files, reference_engine
from tokpress.errors import InputError
from tokpress.live.dataset import LiveDataset
from tokpress.live.parallel import ParallelTokenizer, TokenizerOptions
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.loader import Loader
from tokpress.options import BuildOptions, LiveOptions, PathLike, as_list, build_config
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover

_READ_BYTES = 256 * 1024  # of text at a time
_RATE_BYTES = 64 * 1024  # encoded to find out how long a sample is
_MOST_BYTES = 32 * 10**6  # of text; more steps go through it again


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a training loop that gets its tokens in this way spends its time."""

    name: str
    seconds_per_batch: float  # to make one, with nothing else going on
    data_wait: float  # seconds that a step waits for its batch
    share: float  # of the time between two steps that is waiting
    tokens_per_second: float  # that the loop trains on


def compare_ways(
    inputs: PathLike | Sequence[PathLike],
    *,
    tokenizer: PathLike,
    seq_len: int = 2048,
    batch_size: int = 8,
    step_seconds: float = 0.05,
    workers: int | None = None,
    steps: int = 20,
    **options: Unpack[LiveOptions],
) -> list[Way]:
    """Takes about four times `steps * step_seconds`, and what encoding that many batches five times takes."""
    config = build_config(tokenizer, cast(BuildOptions, options))
    engine = reference_engine(load_files(config.tokenizer), config.tokenizer.special_tokens)
    samples = _samples(inputs, config, engine, seq_len, steps * batch_size)
    batches = [samples[i : i + batch_size] for i in range(0, len(samples), batch_size)]
    texts = [pa.array(batch, pa.large_string()) for batch in batches]
    tokens = sum(len(engine.encode(text).ids) for text in texts) / len(texts)
    how = {name: value for name, value in options.items() if name in TokenizerOptions.__annotations__}
    how["eos"] = False  # not every tokenizer names one

    def way(name: str, make: float, wait: float, tokens: float = seq_len * batch_size) -> Way:
        between = wait + step_seconds
        return Way(
            name=name,
            seconds_per_batch=make,
            data_wait=wait,
            share=wait / between,
            tokens_per_second=tokens / between,
        )

    def inside(name: str, encode: Callable[[int], object]) -> Way:
        """In the loop itself: the step waits for all of it."""
        encode(0)
        seconds = _seconds(lambda: [encode(i) for i in range(len(batches))]) / len(batches)
        return way(name, seconds, seconds, tokens)

    def beside(name: str, batches_of: Callable[[bool], Iterator[object]]) -> Way:
        """Ahead of the loop: the step waits for what is not there yet."""
        made = batches_of(False)
        next(made)
        make = _seconds(lambda: list(islice(made, steps))) / steps
        ahead = batches_of(True)
        next(ahead)
        waited = 0.0
        for _ in range(steps):
            sleep(step_seconds)
            waited += _seconds(lambda: next(ahead))
        return way(name, make, waited / steps)

    with (
        tempfile.TemporaryDirectory(prefix="tokpress-") as scratch,
        ParallelTokenizer(tokenizer, workers=workers, **how) as parallel,  # type: ignore[arg-type]
    ):
        source = Path(scratch, "samples.jsonl")
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in samples), "utf-8")
        parallel(samples)  # makes the pool, and proves the fast engine
        shape: dict[str, Any] = {"seq_len": seq_len, "output": "numpy"}
        store = PretokenizedDataset(build(source, tokenizer=tokenizer, out=Path(scratch, "store"), **how), **shape)  # type: ignore[arg-type]
        live: dict[str, Any] = {**shape, **how, "tokenizer": tokenizer, "batch_size": batch_size, "workers": workers}
        return [
            inside("one by one", lambda i: [engine.encode(texts[i][k : k + 1]) for k in range(len(texts[i]))]),
            inside("batch", lambda i: engine.encode(texts[i])),
            inside("parallel", lambda i: parallel(batches[i])),
            beside(
                "live",
                lambda ahead: iter(LiveDataset(source, max_epochs=math.inf, prefetch=16 if ahead else 0, **live)),
            ),
            beside(
                "pre-tokenized",
                lambda ahead: iter(Loader(store, batch_size=batch_size, max_epochs=math.inf, threads=int(ahead))),
            ),
        ]


def _samples(
    inputs: PathLike | Sequence[PathLike], config: BuildConfig, engine: Engine, seq_len: int, count: int
) -> list[str]:
    """So many texts of about `seq_len` tokens each: the beginning of the inputs, from the start again if it is short."""
    documents = _documents(inputs, config)
    head = "".join(_up_to(documents, _RATE_BYTES))
    if not head:
        raise InputError("there is no text in these inputs to measure with. See what is in them: head -c 300 FILE")
    size = max(len(head) * seq_len // max(len(engine.encode(pa.array([head], pa.large_string())).ids), 1), 1)
    text = head + "".join(_up_to(documents, min(count * size, _MOST_BYTES) - len(head)))
    pieces = [text[i : i + size] for i in range(0, max(len(text) - size, 0) + 1, size)]
    return list(islice(cycle(pieces), count))


def _documents(inputs: PathLike | Sequence[PathLike], config: BuildConfig) -> Iterator[str]:
    sources = discover(as_list(inputs), config.read)
    readers = (open_reader(source, i, config.read, _READ_BYTES) for i, source in enumerate(sources))
    batches = chain.from_iterable(reader.read() for reader in readers)
    return chain.from_iterable(batch.text.to_pylist() for batch in batches)


def _up_to(documents: Iterator[str], size: int) -> Iterator[str]:
    while size > 0 and (document := next(documents, None)) is not None:
        size -= len(document)
        yield document


def _seconds(action: Callable[[], object]) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began
