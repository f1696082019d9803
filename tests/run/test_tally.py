"""The counters of a run, and when there are too many rejects."""

from __future__ import annotations

from time import perf_counter

import pytest

import tokpress
from tokpress.errors import TooManyRejects
from tokpress.records import BAD_JSON, EMPTY, OVERLONG, Reject
from tokpress.run import events
from tokpress.run.events import Event, Quiet
from tokpress.run.messages import Advanced, Done
from tokpress.run.tally import Tally

from .jobs import receipt


class Listener:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def on(self, event: Event) -> None:
        self.heard.append(event)


def rejected(count: int, line: int | None = None, docs: int = 0) -> Advanced:
    examples = [
        Reject(source="a.jsonl", input=0, position=70 + i, line=line and line + i, reason=BAD_JSON, detail="no object")
        for i in range(min(count, 3))
    ]
    return Advanced(docs=docs, rejects=count, examples=examples)


class TestCounting:
    def test_adds_up_and_passes_on(self) -> None:
        listener = Listener()
        tally = Tally("1%", listener)
        batches = [Advanced(input_bytes=10, text_bytes=7, docs=2, tokens=5), Advanced(input_bytes=1, docs=1, tokens=1)]
        for worker, batch in enumerate(batches):
            tally.heard(worker, batch)
        assert (tally.input_bytes, tally.text_bytes, tally.docs, tally.tokens, tally.rejects) == (11, 7, 3, 6, 0)
        assert listener.heard == [
            events.Advanced(worker=0, input_bytes=10, text_bytes=7, docs=2, tokens=5),
            events.Advanced(worker=1, input_bytes=1, docs=1, tokens=1),
        ]

    def test_bad_records_are_shown_beside_their_number(self) -> None:
        listener = Listener()
        batch = rejected(7, line=1)
        Tally("1%", listener).heard(3, batch)
        assert listener.heard == [
            events.Advanced(worker=3, rejects=7),
            events.Rejected(worker=3, examples=batch.examples),
        ]

    def test_a_unit_that_is_done_is_told_with_all_its_shards(self) -> None:
        listener = Listener()
        shards = [receipt(4, 0, docs=5), receipt(4, 1, docs=2)]
        Tally("1%", listener).finished(Done(unit=4, receipts=shards))
        tokens = sum(shard.tokens for shard in shards)
        names = ["train-00004-000", "train-00004-001"]
        assert listener.heard == [events.UnitDone(unit=4, docs=7, tokens=tokens, shards=names)]

    def test_facts_are_for_the_manifest(self) -> None:
        tally = Tally("1%", Quiet())
        tally.heard(0, Advanced(input_bytes=2_000_000, text_bytes=1_000_000, docs=100, tokens=5000))
        tally.finished(Done(unit=0, stage_seconds={"read": 1.0, "encode": 2.0}, cpu_seconds=3.0))
        tally.finished(Done(unit=1, stage_seconds={"read": 2.5, "write": 0.5}, cpu_seconds=1.0))
        facts = tally.facts(workers=2, threads=3, peak_bytes=77, started=perf_counter() - 4)
        assert facts.stage_seconds == {"read": 3.5, "encode": 2.0, "write": 0.5}
        assert facts.bottleneck == "read"
        assert facts.cpu_use == pytest.approx(0.5, abs=0.01)  # 4 s of CPU in 4 s of 2 workers
        assert (facts.input_bytes, facts.text_bytes) == (2_000_000, 1_000_000)
        assert (facts.workers, facts.threads, facts.peak_memory_bytes) == (2, 3, 77)
        assert facts.versions["tokpress"] == tokpress.__version__
        assert facts.docs_per_s > 0 < facts.tokens_per_s

    def test_a_run_with_nothing_left_to_do_has_no_bottleneck(self) -> None:
        facts = Tally("1%", Quiet()).facts(workers=1, threads=1, peak_bytes=0, started=perf_counter())
        assert (facts.bottleneck, facts.stage_seconds, facts.cpu_use) == (None, {}, 0)


class TestResumed:
    """What an earlier run met counts as it did then."""

    def test_records_left_out_on_request_were_no_bad_ones(self) -> None:
        tally = Tally("3", Quiet())
        tally.resumed([receipt(0, 0, docs=5, rejects={EMPTY: 50, BAD_JSON: 1}), receipt(0, 1, rejects={OVERLONG: 40})])
        tally.heard(0, rejected(2))
        with pytest.raises(TooManyRejects, match=r"^4 of 10 records were rejected"):  # 3 + 1 bad ones, 6 documents
            tally.heard(0, rejected(1))

    def test_bad_ones_were(self) -> None:
        tally = Tally("3", Quiet())
        tally.resumed([receipt(0, 0, rejects={BAD_JSON: 4})])
        with pytest.raises(TooManyRejects, match=r"^4 of 5 records were rejected"):
            tally.check_rejects()


class TestTooMany:
    @pytest.mark.parametrize(
        ("limit", "docs", "rejects"), [("5", 0, 5), ("1%", 990, 10), ("2%", 980, 20), ("0", 50, 0)]
    )
    def test_up_to_the_limit_is_fine(self, limit: str, docs: int, rejects: int) -> None:
        tally = Tally(limit, Quiet())
        tally.heard(0, rejected(rejects, docs=docs))
        tally.check_rejects()

    @pytest.mark.parametrize(
        ("limit", "docs", "rejects"), [("5", 0, 6), ("1%", 985, 15), ("2%", 979, 21), ("0", 50, 1)]
    )
    def test_above_it_the_first_are_shown(self, limit: str, docs: int, rejects: int) -> None:
        tally = Tally(limit, Quiet())
        with pytest.raises(TooManyRejects) as stopped:  # noqa: PT012
            tally.heard(0, rejected(rejects, line=7, docs=docs))
            tally.check_rejects()
        told = str(stopped.value).splitlines()
        assert told[0] == (
            f"{rejects:,} of {docs + rejects:,} records were rejected, more than --max-rejects {limit} allows. "
            "The first of them:"
        )
        assert told[1:-1] == [f"  a.jsonl at line {7 + i}: bad-json, no object" for i in range(min(rejects, 3))]
        assert told[-1] == "Mend the inputs or raise the limit, and run the command again."

    def test_shows_the_first_of_several_batches_by_position_where_there_are_no_lines(self) -> None:
        tally = Tally("3", Quiet())
        tally.heard(0, rejected(1))
        tally.heard(1, rejected(2))
        with pytest.raises(TooManyRejects) as stopped:
            tally.heard(0, rejected(3))
        assert [line.split(":")[0] for line in str(stopped.value).splitlines()[1:-1]] == [
            "  a.jsonl at 70",
            "  a.jsonl at 70",
            "  a.jsonl at 71",
        ]

    def test_a_share_is_not_judged_by_the_first_few_records(self) -> None:
        tally = Tally("1%", Quiet())
        tally.heard(0, rejected(50, docs=100))
        tally.heard(0, rejected(0, docs=10_000))
        tally.check_rejects()

    def test_a_hopeless_run_is_stopped_while_it_runs(self) -> None:
        tally = Tally("1%", Quiet())
        with pytest.raises(TooManyRejects):  # noqa: PT012
            for _ in range(100):
                tally.heard(0, rejected(100))
        assert tally.rejects <= 1100
