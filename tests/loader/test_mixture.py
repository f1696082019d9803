"""Mixing: exact proportions at every prefix, found in O(1) both ways, in stages, until sources are used up."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.loader.order.mixture import Mixture

NAMES = ["a", "b", "c", "d", "e"]
weight_lists = st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any)


def mixture(
    sizes: dict[str, int],
    weights: dict[str, Any],
    stages: dict[int, dict[str, Any]] | None = None,
    max_epochs: dict[str, int | None] | None = None,
) -> Mixture:
    return Mixture(sizes, weights, stages or {}, max_epochs or {})


def drawn(mixed: Mixture, stop: int) -> list[tuple[str, int]]:
    """(source, draw) of the samples 0 .. stop - 1."""
    sources, draws = mixed.draws(np.arange(stop))
    return [(mixed.names[source], draw) for source, draw in zip(sources.tolist(), draws.tolist(), strict=True)]


class TestProportions:
    @given(weight_lists)
    def test_hold_at_every_prefix(self, weights: list[int]) -> None:
        names = NAMES[: len(weights)]
        shares = dict(zip(names, weights, strict=True))
        counts = Counter[str]()
        for number, (name, draw) in enumerate(
            drawn(mixture(dict.fromkeys(names, 9), shares), 3 * sum(weights)), start=1
        ):
            assert draw == counts[name]  # each source is drawn from in its own order, nothing left out
            counts[name] += 1
            for other in names:
                wanted = Fraction(shares[other] * number, sum(weights))
                assert abs(counts[other] - wanted) <= (len(names) + 1) / 2

    @given(weight_lists, st.integers(1, 5))
    def test_are_exact_after_each_period(self, weights: list[int], periods: int) -> None:
        names = NAMES[: len(weights)]
        mixed = mixture(dict.fromkeys(names, 9), dict(zip(names, weights, strict=True)))
        counts = Counter(name for name, _ in drawn(mixed, periods * sum(weights)))
        assert counts == Counter({name: periods * weight for name, weight in zip(names, weights, strict=True)})

    def test_far_out_are_as_exact(self) -> None:
        mixed = mixture({"a": 9, "b": 9}, {"a": 3, "b": 1})
        far = 4 * 10**15
        sources, draws = mixed.draws(np.arange(far, far + 4))
        assert sorted(zip(sources.tolist(), draws.tolist(), strict=True)) == [
            *((0, 3 * 10**15 + i) for i in range(3)),
            (1, 10**15),
        ]

    def test_decimals_mean_what_they_say(self) -> None:
        counts = Counter(name for name, _ in drawn(mixture({"a": 9, "b": 9}, {"a": 0.7, "b": 0.3}), 1000))
        assert counts == {"a": 700, "b": 300}

    def test_a_source_without_weight_is_left_out(self) -> None:
        assert {name for name, _ in drawn(mixture({"a": 9, "b": 9}, {"b": 5}), 50)} == {"b"}


class TestInverse:
    @settings(deadline=None)
    @given(
        weights=weight_lists,
        later=weight_lists,
        start=st.integers(1, 200),
        sizes=st.lists(st.integers(1, 40), min_size=5, max_size=5),
        epochs=st.lists(st.none() | st.integers(1, 3), min_size=5, max_size=5),
    )
    def test_leads_back(
        self, weights: list[int], later: list[int], start: int, sizes: list[int], epochs: list[int | None]
    ) -> None:
        limits = dict(zip(NAMES, epochs, strict=True))
        arguments = (dict(zip(NAMES, sizes, strict=True)), dict(zip(NAMES, weights, strict=False)))
        try:
            mixed = mixture(*arguments, {start: dict(zip(NAMES, later, strict=False))}, limits)
        except UsageError:  # a stage that never comes
            mixed = mixture(*arguments, {}, limits)
        stop = 400 if mixed.total is None else min(mixed.total, 400)
        for sample, (name, draw) in enumerate(drawn(mixed, stop)):
            assert mixed.sample_of(name, draw) == sample

    def test_of_what_is_never_drawn_is_none(self) -> None:
        mixed = mixture({"a": 5, "b": 5}, {"a": 1, "b": 1}, {6: {"a": 1}}, {"a": 2, "b": 2})
        assert mixed.sample_of("b", 3) is None
        assert mixed.sample_of("a", 10) is None
        assert mixed.sample_of("a", 9) == 12


class TestStages:
    def test_change_the_weights_and_go_on_with_each_source(self) -> None:
        mixed = mixture({"a": 99, "b": 99, "c": 99}, {"a": 1, "b": 1}, {10: {"a": 1, "c": 3}, 30: {"b": 1}})
        history = drawn(mixed, 40)
        assert Counter(name for name, _ in history[:10]) == {"a": 5, "b": 5}
        assert Counter(name for name, _ in history[10:30]) == {"a": 5, "c": 15}
        assert {name for name, _ in history[30:]} == {"b"}
        for name in "abc":
            draws = [draw for other, draw in history if other == name]
            assert draws == list(range(len(draws)))  # none repeated, none left out

    def test_the_past_does_not_depend_on_later_ones(self) -> None:
        plain = mixture({"a": 9, "b": 9}, {"a": 2, "b": 1})
        staged = mixture({"a": 9, "b": 9}, {"a": 2, "b": 1}, {7: {"b": 1}})
        assert drawn(plain, 7) == drawn(staged, 7)

    def test_one_that_never_comes_is_an_error(self) -> None:
        with pytest.raises(UsageError, match=r"from sample 100 on never comes: .* used up after 5 samples"):
            mixture({"a": 5}, {"a": 1}, {100: {"a": 2}}, {"a": 1})


class TestUsedUp:
    def test_a_source_leaves_and_the_others_keep_their_proportions(self) -> None:
        mixed = mixture({"a": 1000, "b": 1000, "c": 10}, {"a": 2, "b": 1, "c": 3}, None, {"c": 2})
        history = drawn(mixed, 640)
        counts = Counter(name for name, _ in history)
        assert counts["c"] == 20
        after = [name for name, _ in history[100:]]
        assert Counter(after[:300]) == {"a": 200, "b": 100}

    def test_the_end_is_when_all_are(self) -> None:
        mixed = mixture({"a": 5, "b": 7}, {"a": 1, "b": 1}, None, {"a": 2, "b": 1})
        assert mixed.total == 17
        assert Counter(name for name, _ in drawn(mixed, 17)) == {"a": 10, "b": 7}

    def test_without_limits_there_is_no_end(self) -> None:
        assert mixture({"a": 5}, {"a": 1}).total is None

    def test_the_same_source_may_come_back_in_a_later_stage(self) -> None:
        mixed = mixture({"a": 5, "b": 50}, {"a": 1}, {3: {"b": 1}, 8: {"a": 1}}, {"a": 1, "b": 1})
        assert drawn(mixed, 10) == [*(("a", i) for i in range(3)), *(("b", i) for i in range(5)), ("a", 3), ("a", 4)]
        assert mixed.total == 10


class TestMistakes:
    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ({"a": 1, "x": 2}, "no such source. The sources are: a, b"),
            ({"a": -1}, "weight of 'a' is -1"),
            ({"a": float("nan")}, "weight of 'a' is nan"),
            ({"a": float("inf")}, "weight of 'a' is inf"),
            ({"a": True}, "weight of 'a' is True"),
            ({"a": 0, "b": 0}, "all weights are 0"),
            ({"a": 0.123456789, "b": 1}, "repeat only after .* samples.*Round them"),
        ],
    )
    def test_in_weights_are_named(self, weights: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            mixture({"a": 5, "b": 5}, weights)
