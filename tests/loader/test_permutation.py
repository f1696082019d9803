"""The shuffled order: a bijection for every n, invertible, the same for ever, and as good as random where it matters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import Int64s
from tokpress.hashing import mix
from tokpress.loader.order.permutation import MAX_SAMPLES, ROUNDS, Permutation, derive_keys

WORD = 2**64
FIRST_TEN = [8, 4, 9, 0, 6, 5, 1, 3, 7, 2]
FIRST_OF_MANY = [878611646284, 274796505098, 878939147744]


def slow_mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def slow_sample(n: int, position: int, *key: str | int) -> int:
    """The definition, a number at a time."""
    half_bits = max(((n - 1).bit_length() + 1) // 2, 3)
    value = position
    keys: list[int] = derive_keys(*key, count=ROUNDS).tolist()
    while True:
        left, right = value >> half_bits, value & ((1 << half_bits) - 1)
        for round_key in keys:
            left, right = right, left ^ (slow_mix(right ^ round_key) >> (64 - half_bits))
        value = left << half_bits | right
        if value < n:
            return value


class TestBijection:
    def test_for_every_n_to_5000(self) -> None:
        for n in range(1, 5001):
            order = Permutation(n, "every", n)
            positions = np.arange(n)
            samples = order.samples(positions)
            assert np.array_equal(np.bincount(samples, minlength=n), np.ones(n)), n
            assert np.array_equal(order.positions(samples), positions), n

    @pytest.mark.parametrize("power", range(1, 41))
    def test_around_powers_of_two(self, power: int) -> None:
        rng = np.random.default_rng(power)
        for n in (2**power - 1, 2**power, 2**power + 1):
            order = Permutation(n, "power")
            some = np.unique(np.concatenate((rng.integers(0, n, 300), [0, n - 1, n // 2])))
            samples = order.samples(some)
            assert len(np.unique(samples)) == len(some)
            assert 0 <= samples.min() <= samples.max() < n
            assert np.array_equal(order.positions(samples), some)
            assert np.array_equal(order.samples(order.positions(some)), some)

    @given(st.integers(1, MAX_SAMPLES), st.integers(0, 2**64), st.data())
    def test_of_anything_is_the_definition(self, n: int, seed: int, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, n - 1))
        order = Permutation(n, seed)
        assert order.sample(position) == slow_sample(n, position, seed)
        assert order.position(order.sample(position)) == position

    def test_of_nothing(self) -> None:
        assert len(Permutation(0, 1).samples(np.empty(0, np.int64))) == 0

    @pytest.mark.parametrize("wrong", [-1, 10, 11, 2**62])
    def test_outside_is_an_error(self, wrong: int) -> None:
        for ask in (Permutation(10, 1).sample, Permutation(10, 1).position):
            with pytest.raises(IndexError, match=r"not within 0 \.\. 9"):
                ask(wrong)

    def test_does_not_change_what_it_is_given(self) -> None:
        positions = np.arange(100)
        Permutation(100, 1).samples(positions)
        assert np.array_equal(positions, np.arange(100))


class TestStability:
    def test_the_order_of_a_key_never_changes(self) -> None:
        """Runs are resumed with it, years later."""
        assert Permutation(10, "samples", 0, "data", 0).samples(np.arange(10)).tolist() == FIRST_TEN
        assert Permutation(10**12, "samples", 7, "web", 3).samples(np.arange(3)).tolist() == FIRST_OF_MANY

    def test_splitmix64_is_splitmix64(self) -> None:
        """The first outputs of the reference generator for seed 1234567."""
        state = 1234567
        step = 0x9E3779B97F4A7C15
        words = mix(np.array([(state + i * step) % WORD for i in range(3)], np.uint64))
        assert words.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]

    def test_every_part_of_a_key_counts(self) -> None:
        keys = [("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("b", 1, 0), ("a", 11, 0), ("a1", 1, 0)]
        orders = {tuple(Permutation(1000, *key).samples(np.arange(1000)).tolist()) for key in keys}
        assert len(orders) == len(keys)


N = 100_000
BATCH = 256


def congruential(n: int) -> Int64s:
    """What a cheap order looks like: each sample once, but evenly spread."""
    return (np.arange(n, dtype=np.int64) * 61_803 + 12_345) % n


def composition_excess(order: Int64s) -> float:
    """Chi-square of how many samples of each tenth of the corpus (an ordered source) are in each batch, as standard
    deviations from what is expected: about 0 if random, far below if too even, far above if clumped."""
    batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH) * 10 // len(order)
    counts = np.stack([(batches == tenth).sum(axis=1) for tenth in range(10)], axis=1)
    expected = BATCH / 10
    chi = ((counts - expected) ** 2 / expected).sum()
    freedom = len(batches) * 9
    return float((chi - freedom) / math.sqrt(2 * freedom))


def step_excess(order: Int64s) -> float:
    """Chi-square of the differences between neighbours, modulo n, in a hundred classes."""
    steps = np.diff(order) % len(order)
    counts = np.bincount(steps * 100 // len(order), minlength=100)
    chi = ((counts - len(steps) / 100) ** 2 / (len(steps) / 100)).sum()
    return float((chi - 99) / math.sqrt(2 * 99))


@pytest.mark.parametrize("excess", [composition_excess, step_excess])
class TestUniformity:
    @pytest.mark.parametrize("n", [N, 2**17, 2**16 + 1])
    @pytest.mark.parametrize("seed", range(3))
    def test_is_that_of_a_random_order(self, excess: Callable[[Int64s], float], n: int, seed: int) -> None:
        assert abs(excess(Permutation(n, seed).samples(np.arange(n)))) < 5

    def test_which_a_linear_congruential_order_has_not(self, excess: Callable[[Int64s], float]) -> None:
        order = congruential(N)
        assert len(np.unique(order)) == N
        assert abs(excess(order)) > 20


def test_all_orders_of_a_few_samples_are_equally_likely() -> None:
    n, trials = 4, 2500
    orders = Counter(tuple(Permutation(n, "small", seed).samples(np.arange(n)).tolist()) for seed in range(trials))
    possible = math.factorial(n)
    expected = trials / possible
    chi = sum((count - expected) ** 2 / expected for count in orders.values()) + expected * (possible - len(orders))
    assert abs(chi - (possible - 1)) / math.sqrt(2 * (possible - 1)) < 5


def test_epochs_have_nothing_to_do_with_each_other() -> None:
    """Where a sample stands in one epoch says nothing about the next one."""
    first, second = (Permutation(N, "data", epoch).positions(np.arange(N)) for epoch in (0, 1))
    assert abs(float(np.corrcoef(first, second)[0, 1])) < 5 / math.sqrt(N)
