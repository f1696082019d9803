"""Shares: which there are, and which units are whose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.run.share import Share, parse_share, units_of


class TestParse:
    @pytest.mark.parametrize(("text", "index", "count"), [("0/1", 0, 1), ("3/64", 3, 64), ("63/64", 63, 64)])
    def test_by_number(self, text: str, index: int, count: int) -> None:
        assert parse_share(text, {}) == Share(index, count)

    @pytest.mark.parametrize("text", ["", "1", "1/1", "2/1", "-1/2", "a/b", "0/0", "1/2/3", " 0/1", "Auto"])
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(UsageError, match="is no share"):
            parse_share(text, {})

    @pytest.mark.parametrize(
        ("task", "first", "step", "index"), [(0, 0, 1, 0), (1, 1, 1, 0), (7, 4, 1, 3), (9, 1, 2, 4)]
    )
    def test_of_a_slurm_array(self, task: int, first: int, step: int, index: int) -> None:
        array = {"TASK_ID": task, "TASK_MIN": first, "TASK_STEP": step, "TASK_COUNT": 5}
        environment = {f"SLURM_ARRAY_{name}": str(value) for name, value in array.items()}
        assert parse_share("auto", environment) == Share(index, 5)

    def test_of_an_indexed_job(self) -> None:
        assert parse_share("auto", {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"}) == Share(2, 3)

    @pytest.mark.parametrize(
        ("environment", "said"),
        [
            ({}, "neither is here"),
            ({"JOB_COMPLETION_INDEX": "2"}, "needs JOB_COMPLETIONS"),
            ({"JOB_COMPLETION_INDEX": "3", "JOB_COMPLETIONS": "3"}, "JOB_COMPLETION_INDEX=3"),
            ({"SLURM_ARRAY_TASK_ID": "3"}, "needs SLURM_ARRAY_TASK_COUNT"),
            (
                {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1"},
                "does not belong",
            ),
            ({"SLURM_ARRAY_TASK_ID": "x"}, "is no number"),
        ],
    )
    def test_where_it_cannot_be_known(self, environment: dict[str, str], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            parse_share("auto", environment)


class TestUnits:
    @given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 9))
    def test_every_unit_is_in_one_share(self, sizes: list[int], count: int) -> None:
        shares = [units_of(Share(index, count), sizes) for index in range(count)]
        assert sorted(unit for share in shares for unit in share) == list(range(len(sizes)))

    @given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 9))
    def test_no_share_is_larger_than_another_by_more_than_a_unit(self, sizes: list[int], count: int) -> None:
        totals = [sum(sizes[unit] + 1 for unit in units_of(Share(index, count), sizes)) for index in range(count)]
        assert max(totals) - min(totals) <= max(sizes) + 1

    def test_units_without_a_size_are_shared_too(self) -> None:
        assert [len(units_of(Share(index, 4), [0] * 8)) for index in range(4)] == [2, 2, 2, 2]
