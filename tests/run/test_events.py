"""What a run tells: records that are JSON as well, and whoever hears them."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest

from tokpress.errors import UsageError
from tokpress.records import BAD_JSON, Counts, Difference, Input, Parity, Reject, RunFacts, TokenizerInfo
from tokpress.run import events
from tokpress.run.events import Event, Quiet, Timed, join

REJECT = Reject(source="a.jsonl", input=0, position=7, line=2, reason=BAD_JSON, detail="no object")
EXAMPLES: list[Event] = [
    events.Began(time=0.0, started_at=1.7e9, store="tokens", version="0.1.0"),
    events.InputsFound(files=2, bytes=30, formats=["jsonl.zst", "parquet"], stdin=False),
    events.TokenizerLoaded(
        kind="bytes", fingerprint="f", vocab_size=257, dtype="uint16", bos=None, eos="<|endoftext|>"
    ),
    events.Proved(
        outcome="different",
        engine="huggingface",
        reference="huggingface",
        difference=Difference(text="\x1b[", token=3, fast=[1], reference=[2]),
    ),
    events.FirstDocument(head="Hello<|endoftext|>", tail="", tokens=6),
    events.AlreadyFinished(store="tokens"),
    events.Resuming(units=9, units_left=3, docs=100),
    events.ShardsLost(shards=["train-00001-000"]),
    events.Started(bytes=30, units=3, workers=2, threads=1),
    events.FewerWorkers(workers=1, why="a record needs more. Give more."),
    events.NoConditions(store="s3://bucket/run"),
    events.Advanced(time=1.25, worker=0, input_bytes=10, text_bytes=8, docs=1, tokens=9, rejects=1),
    events.Rejected(worker=0, examples=[REJECT]),
    events.Workers(workers=[events.WorkerView(number=0, unit=None, cpu_percent=99.5, memory_bytes=10**8)]),
    events.UnitDone(unit=4, docs=7, tokens=70, shards=["train-00004-000"]),
    events.Stopped(),
    events.Finished(
        store="tokens",
        fingerprint="f",
        docs=1,
        tokens=9,
        totals=Counts(read=2, written=1, rejected=1),
        rejects={BAD_JSON: 1},
        run=RunFacts(seconds=1.5),
    ),
    events.Failed(error="KeyboardInterrupt", message=""),
]


class TestJson:
    def test_there_is_an_example_of_each(self) -> None:
        assert [type(example) for example in EXAMPLES] == list(get_args(Event))

    @pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
    def test_of_each_is_one_line_and_comes_back_the_same(self, event: Event) -> None:
        line = events.encode(event)
        assert b"\n" not in line
        assert events.decode(line) == event

    def test_says_first_what_it_is_and_when(self) -> None:
        assert events.encode(events.FirstDocument(time=2.5, head="a", tail="", tokens=1)) == (
            b'{"event":"first-document","time":2.5,"head":"a","tail":"","tokens":1}'
        )

    def test_names_are_words_with_hyphens(self) -> None:
        names = [json.loads(events.encode(example))["event"] for example in EXAMPLES]
        assert names[:4] == ["began", "inputs-found", "tokenizer-loaded", "proved"]
        assert len(set(names)) == len(names)

    def test_anything_else_is_none(self) -> None:
        for line in (b"{}", b'{"event":"cooked","time":0.0}', b'{"event":"advanced","worker":"one"}', b"[1]"):
            with pytest.raises(msgspec.ValidationError):
                events.decode(line)


class TestMaking:
    def test_inputs_are_summed_up(self) -> None:
        def source(path: str, kind: str, size: int, compression: str | None = None) -> Input:
            return Input(path=path, format=kind, compression=compression, size=size, mtime_ns=0)

        found = [source("a", "jsonl", 5, "zst"), source("b", "parquet", 7), source("-", "jsonl", 0)]
        assert events.InputsFound.of(found) == events.InputsFound(
            files=2, bytes=12, formats=["jsonl", "jsonl.zst", "parquet"], stdin=True
        )

    def test_special_tokens_are_named(self) -> None:
        info = TokenizerInfo(kind="bytes", fingerprint="f", vocab_size=9, special_tokens={"<s>": 7, "</s>": 8})
        loaded = events.TokenizerLoaded.of(info, dtype="uint16", bos_id=None, eos_id=8)
        assert (loaded.bos, loaded.eos) == (None, "</s>")

    def test_a_proof_has_all_that_was_found(self) -> None:
        parity = Parity(outcome="equal", engine="gigatoken", reference="tiktoken", docs=5, bytes=6, detail="x")
        proved = events.Proved.of(parity)
        assert all(
            getattr(proved, name) == getattr(parity, name) for name in set(Parity.__struct_fields__) - {"refused"}
        )


class TestReporters:
    def test_all_that_are_joined_hear_in_order(self) -> None:
        heard: list[tuple[str, Event]] = []

        class Object:
            def on(self, event: Event) -> None:
                heard.append(("object", event))

        join(Object(), lambda event: heard.append(("function", event)), Quiet()).on(EXAMPLES[0])
        assert heard == [("object", EXAMPLES[0]), ("function", EXAMPLES[0])]

    def test_one_alone_is_itself(self) -> None:
        quiet = Quiet()
        assert join(quiet) is quiet

    def test_what_cannot_hear_is_wrong_usage(self) -> None:
        with pytest.raises(UsageError, match=r"reporter='loud' hears nothing\."):
            join("loud")  # type: ignore[arg-type]

    def test_time_is_counted_from_when_the_run_began(self) -> None:
        now = iter([100.0, 100.5, 103.25])
        heard: list[Event] = []
        timed = Timed(join(heard.append), clock=lambda: next(now))
        for event in (events.Stopped(), events.Stopped()):
            timed.on(event)
        assert heard == [events.Stopped(time=0.5), events.Stopped(time=3.25)]
