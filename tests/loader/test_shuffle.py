"""Orders: each sample once, and back; by blocks: long runs for the disk, mixed enough for the model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.loader.order.shuffle import BlockOrder, make_order, parse_shuffle


@pytest.mark.parametrize("shuffle", ["none", "samples", "blocks"])
@given(n=st.integers(1, 400), seed=st.integers(0, 99), block_samples=st.integers(1, 50))
def test_each_sample_once_and_back(shuffle: str, n: int, seed: int, block_samples: int) -> None:
    order = make_order(shuffle, n, seed, block_samples=block_samples)  # type: ignore[arg-type]
    samples = order.samples(np.arange(n))
    assert sorted(samples.tolist()) == list(range(n))
    assert order.positions(samples).tolist() == list(range(n))
    some = np.array([n - 1, 0, n // 2, n // 2])
    assert order.samples(some).tolist() == samples[some].tolist()


@pytest.mark.parametrize(("said", "meant"), [(True, "samples"), (False, "none"), ("blocks", "blocks")])
def test_what_shuffle_means(said: bool | str, meant: str) -> None:
    assert parse_shuffle(said) == meant


def test_another_shuffle_is_an_error() -> None:
    with pytest.raises(UsageError, match="shuffle='block' is not known"):
        parse_shuffle("block")


class TestBlocks:
    BLOCK, WINDOW = 32, 4

    def order(self, epoch: int, n: int = 10_000) -> BlockOrder:
        return BlockOrder(n, "seed", epoch, block_samples=self.BLOCK, window_blocks=self.WINDOW)

    def test_a_window_touches_few_runs_of_the_file(self) -> None:
        samples = self.order(0).samples(np.arange(10_000))
        size = self.BLOCK * self.WINDOW
        for start in range(0, 10_000 - size, size):
            window = np.sort(samples[start : start + size])
            assert (np.diff(window) != 1).sum() <= self.WINDOW  # one more where blocks go round the end

    def test_a_window_is_mixed(self) -> None:
        samples = self.order(0).samples(np.arange(10_000))
        neighbours = (np.abs(np.diff(samples)) == 1).mean()
        assert neighbours < 0.05

    def test_epochs_cut_blocks_elsewhere(self) -> None:
        heads = {int(self.order(epoch).samples(np.arange(128)).min()) % self.BLOCK for epoch in range(8)}
        assert len(heads) > 3

    def test_far_windows_share_nothing_of_their_order(self) -> None:
        order, size = self.order(0), self.BLOCK * self.WINDOW
        inner = [tuple(np.argsort(order.samples(np.arange(w * size, (w + 1) * size))).tolist()) for w in range(4)]
        assert len(set(inner)) == 4
