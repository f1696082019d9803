"""Measurements for `tokpress bench`: ways to encode, and numbers of workers, on the user's own data.

In: inputs and a tokenizer. Out: rates in the same units for each contender, in one run, on the same text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import TokenBatch, text_bytes
from tokpress.config import ReadConfig, TokenizerConfig
from tokpress.engines.base import concat_tokens
from tokpress.engines.load import fast_engine, load_files, reference_engine
from tokpress.engines.table import fast_for
from tokpress.errors import TokenizerError
from tokpress.figure import new_figure
from tokpress.machine import usable_cores
from tokpress.options import BuildOptions, build_config
from tokpress.run.coordinator import build_store
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts

_SAMPLE_BYTES = 4 * 10**6
_LONG_ENOUGH = 10.0  # seconds of one worker


class EncoderRate(msgspec.Struct, frozen=True, kw_only=True):
    way: str
    mb_per_s: float
    tokens_per_s: float
    equal: bool  # ids are those of the reference, document by document


class WorkersRate(msgspec.Struct, frozen=True, kw_only=True):
    workers: int
    input_mb_per_s: float
    tokens_per_s: int
    cpu_use: float
    peak_memory_bytes: int
    seconds: float  # in all, start-up too
    started: int  # workers that there was work for


def encoder_rates(inputs: Sequence[str], tokenizer: str, options: dict[str, Any]) -> list[EncoderRate]:
    """The reference one by one, in a batch and as one long string; then the fast engines, if there are any."""
    read = ReadConfig(**options)
    files = load_files(TokenizerConfig(spec=tokenizer))
    reference = reference_engine(files, "text")
    text = pa.concat_arrays(list(sample_texts(discover(inputs, read), read, total_bytes=_SAMPLE_BYTES)))
    one_string = pa.array(["".join(text.to_pylist())], pa.large_string())
    cores = usable_cores()
    ways: dict[str, Callable[[], TokenBatch]] = {
        f"{reference.name}, one by one": lambda: concat_tokens(
            [reference.encode(text[i : i + 1]) for i in range(len(text))]
        ),
        f"{reference.name}, batch": lambda: reference.encode(text),
        f"{reference.name}, batch on {cores} threads": lambda: reference.encode(text, threads=cores),
        f"{reference.name}, concatenated": lambda: reference.encode(one_string),
    }
    for spec in fast_for(files.kind):
        with suppress(TokenizerError):  # it does not take this tokenizer
            fast = fast_engine(spec.name, files, "text", reference)
            for way in ("first time", "warm"):
                ways[f"{spec.name}, {way}"] = partial(fast.encode, text)
    expected = reference.encode(text)
    rates = []
    for way, encode in ways.items():
        began = perf_counter()
        tokens = encode()
        seconds = perf_counter() - began
        equal = np.array_equal(tokens.ids, expected.ids) and np.array_equal(tokens.ends, expected.ends)
        rates.append(
            EncoderRate(
                way=way,
                mb_per_s=text_bytes(text) / 1e6 / seconds,
                tokens_per_s=len(tokens.ids) / seconds,
                equal=bool(equal),
            )
        )
    return rates


def worker_rates(
    inputs: Sequence[str], tokenizer: str, up_to: int | None, scratch: str | None, options: dict[str, Any]
) -> Iterator[WorkersRate]:
    """Whole builds of the inputs with 1, 2, ... workers; each store is removed again."""
    most = up_to or usable_cores()
    for count in sorted({*range(1, min(most, 4) + 1), *(2**power for power in range(most.bit_length())), most}):
        with tempfile.TemporaryDirectory(prefix="tokpress-bench-", dir=scratch) as directory:
            config = build_config(tokenizer, cast(BuildOptions, options | {"workers": count}))
            store = build_store(inputs, Path(directory) / "store", config)
            run = store.manifest.run
            yield WorkersRate(
                workers=count,
                input_mb_per_s=run.input_mb_per_s,
                tokens_per_s=run.tokens_per_s,
                cpu_use=run.cpu_use,
                peak_memory_bytes=run.peak_memory_bytes,
                seconds=run.seconds,
                started=run.workers,
            )


def too_small(rates: Sequence[WorkersRate]) -> list[str]:
    """What of this measurement says little about a larger one."""
    notes = []
    if (cores := usable_cores()) < rates[-1].workers:
        notes.append(
            f"this machine has {cores} physical {'core' if cores == 1 else 'cores'}: more workers than that share them, and "
            "cannot be faster"
        )
    if rates[0].seconds < _LONG_ENOUGH:
        notes.append(
            f"one worker needed {rates[0].seconds:.1f} s for all of it, and a part of that is starting up: for a figure to "
            f"rely on, give inputs that take {_LONG_ENOUGH:.0f} s or more"
        )
    if rates[-1].workers > rates[-1].started:
        notes.append(
            f"the inputs could be cut for {rates[-1].started} workers only: one compressed file is one worker's work. Give "
            "more files, or a smaller --unit-size"
        )
    return notes


def plot_rates(rates: Sequence[WorkersRate], path: str) -> None:
    figure = new_figure(7, 4)
    axes = figure.subplots()
    counts = [rate.workers for rate in rates]
    axes.plot(counts, [rate.input_mb_per_s for rate in rates], "o-", label="measured")
    axes.plot(
        counts, [count * rates[0].input_mb_per_s for count in counts], ":", color="grey", label="if it scaled fully"
    )
    axes.set_title("tokpress build: how it scales on this machine")
    axes.set_xlabel("workers")
    axes.set_ylabel("MB of input a second")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
