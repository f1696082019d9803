"""What a run may use: never more cores or bytes than it was given, and always enough to go on with."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.machine import usable_cores
from tokpress.run import budget
from tokpress.run.budget import (
    DEFAULT_SHARE,
    MAX_BATCH_BYTES,
    MIN_BATCH_BYTES,
    ORDINARY_BATCHES,
    PARENT_BYTES,
    READ_COST,
    plan_budget,
)
from tokpress.sizes import parse_size

COST = ORDINARY_BATCHES * (READ_COST + 4)  # bytes for each byte of a batch, with an engine that takes 4


megabytes = st.integers(1, 200_000).map(lambda count: count * 10**6)


class TestBudget:
    @given(
        memory=megabytes,
        workers=st.none() | st.integers(1, 300),
        footprint=st.integers(10**6, 20 * 10**9),
        units=st.integers(0, 1000),
    )
    def test_is_never_exceeded_and_always_enough(
        self, memory: int, workers: int | None, footprint: int, units: int
    ) -> None:
        try:
            plan = plan_budget(memory, workers, footprint, units)
        except UsageError as error:
            needed = re.search(r"needs (\S+)\. Give it that much", str(error))
            assert needed is not None
            assert parse_size(needed[1]) > memory
            assert plan_budget(parse_size(needed[1]), workers, footprint, units).workers == 1  # as it says
            return
        assert plan.memory_bytes == memory
        assert 1 <= plan.workers <= min(workers or usable_cores(), max(units, 1))
        assert MIN_BATCH_BYTES <= plan.batch_bytes <= MAX_BATCH_BYTES
        assert footprint + COST * plan.batch_bytes <= plan.worker_bytes
        assert PARENT_BYTES + plan.workers * plan.worker_bytes <= memory
        room, others = plan.room, plan.workers - 1
        assert room.ordinary <= room.share <= room.most
        assert PARENT_BYTES + plan.workers * (footprint + room.share) <= memory
        assert PARENT_BYTES + plan.workers * footprint + room.most + others * room.ordinary <= memory

    @given(memory=megabytes, more=megabytes, footprint=st.integers(10**6, 10**9))
    def test_more_memory_never_gives_fewer_workers(self, memory: int, more: int, footprint: int) -> None:
        needed = PARENT_BYTES + footprint + COST * MIN_BATCH_BYTES
        less = plan_budget(needed + memory, 64, footprint, 64)
        assert plan_budget(needed + memory + more, 64, footprint, 64).workers >= less.workers

    def test_a_large_tokenizer_gets_fewer_workers(self) -> None:
        assert plan_budget(4 * 10**9, 8, 10**9, 100).workers == 3
        assert plan_budget(4 * 10**9, 8, 10**8, 100).workers == 8

    def test_without_memory_given_is_a_share_of_what_is_available(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(budget, "available_memory", lambda: 10**10)
        assert plan_budget(None, 2, 10**8, 2).memory_bytes == int(DEFAULT_SHARE * 10**10)

    def test_without_workers_given_is_a_worker_for_each_core(self) -> None:
        assert plan_budget(10**12, None, 10**8, 1000).workers == usable_cores()
