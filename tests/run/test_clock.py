"""Where the time of a unit goes: every second is counted, and once."""

from __future__ import annotations

import pytest

from tokpress.run.clock import StageClock


class TestStages:
    @pytest.fixture
    def clock(self) -> StageClock:
        clock = StageClock()
        for stage in ("read", "encode", "read", "write"):
            clock.start(stage)
        clock.stop()
        return clock

    def test_are_those_that_were_started(self, clock: StageClock) -> None:
        assert set(clock.seconds) == {"read", "encode", "write"}
        assert min(clock.seconds.values()) >= 0

    def test_time_that_is_moved_is_gone_where_it_was(self, clock: StageClock) -> None:
        before = dict(clock.seconds)
        clock.move(before["read"] / 4, "read", "parse")
        clock.move(before["read"] / 4, "read", "parse")
        assert clock.seconds["read"] == pytest.approx(before["read"] / 2)
        assert clock.seconds["parse"] == pytest.approx(before["read"] / 2)
        assert sum(clock.seconds.values()) == pytest.approx(sum(before.values()))

    def test_nothing_runs_after_the_stop(self, clock: StageClock) -> None:
        before = dict(clock.seconds)
        clock.start("read")
        assert clock.seconds == before
