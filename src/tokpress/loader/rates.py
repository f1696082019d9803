"""Measurements for `tokpress bench loader`: how fast batches of the user's own store come, here.

In: a store and the shape of a batch. Out: rates of the same batches made in several ways, in one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import msgspec

from tokpress.loader.batches.fields import FIELDS
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.loader import Loader

_CHECK_EVERY = 10  # batches between two looks at the clock


class LoaderRate(msgspec.Struct, frozen=True, kw_only=True):
    way: str
    tokens_per_s: float
    batches_per_s: float
    first_batch_ms: float


def loader_rates(
    store: str, *, seq_len: int, method: str, batch_size: int, split: str, seconds: float
) -> Iterator[LoaderRate]:
    """Ids alone, made when asked for and by threads; then all fields."""
    options: dict[str, Any] = {"seq_len": seq_len, "method": method, "split": split}
    ids = PretokenizedDataset(store, fields=["input_ids"], **options)
    if len(ids):
        ids[0]  # imports torch, if it is there: not what is measured
    everything = PretokenizedDataset(store, fields=FIELDS, mask_across_docs=True, **options)
    for way, data, threads in (
        ("input_ids", ids, 0),
        ("input_ids, 1 thread", ids, 1),
        ("input_ids, 2 threads", ids, 2),
        ("all fields", everything, 0),
        ("all fields, 2 threads", everything, 2),
    ):
        began = perf_counter()
        batches = iter(Loader(data, batch_size=batch_size, max_epochs=math.inf, threads=threads))
        next(batches)
        first = perf_counter() - began
        rate = _rate(batches.__next__, seconds)
        yield LoaderRate(
            way=way,
            tokens_per_s=rate * batch_size * seq_len,
            batches_per_s=rate,
            first_batch_ms=first * 1e3,
        )


def _rate(next_batch: Callable[[], object], seconds: float) -> float:
    """Batches a second."""
    count, began = 0, perf_counter()
    while (passed := perf_counter() - began) < seconds or not count:
        for _ in range(_CHECK_EVERY):
            next_batch()
        count += _CHECK_EVERY
    return count / passed
