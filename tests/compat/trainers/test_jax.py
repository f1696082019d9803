"""JAX trains on Grain's batches of our sequences; stopped, it goes on to the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokpress
from compat.training import SEQ_LEN, small_store

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_step_of_jax_goes_on_where_it_was(peer: Any, tmp_path: Path) -> None:
    jax, grain = peer("jax"), peer("grain.python")
    source = tokpress.PretokenizedDataset(small_store(tmp_path), seq_len=SEQ_LEN, output="numpy")

    def loss(table: Any, ids: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(table[ids[:, :-1]])
        counts = labels[:, 1:] != -100
        picked = jax.numpy.take_along_axis(scores, jax.numpy.maximum(labels[:, 1:], 0)[..., None], -1)[..., 0]
        return -(picked * counts).sum() / counts.sum()

    step = jax.jit(lambda table, ids, labels: table - 0.5 * jax.grad(loss)(table, ids, labels))

    def batches() -> Any:
        return grain.MapDataset.source(source).shuffle(seed=3).batch(8).to_iter_dataset().__iter__()

    def train(table: Any, batches: Any, steps: int) -> Any:
        for _ in range(steps):
            batch = next(batches)
            table = step(table, batch["input_ids"].astype(np.int32), batch["labels"].astype(np.int32))
        return table

    start = jax.numpy.zeros((257, 257))
    whole = train(start, batches(), 12)
    interrupted = batches()
    half = train(start, interrupted, 5)
    resumed = batches()
    resumed.set_state(interrupted.get_state())
    assert (train(half, resumed, 7) == whole).all()
