"""A whole build: what is checked before it, what stops it, and what it leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import time
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from conftest import stored

import tokpress
from tokpress.batches import TokenBatch
from tokpress.engines import choice
from tokpress.engines.base import Engine
from tokpress.engines.load import reference_engine
from tokpress.errors import (
    IdRangeError,
    InputError,
    ParityError,
    StoreError,
    TokenizerError,
    TooManyRejects,
    UsageError,
)
from tokpress.machine import usable_cores
from tokpress.options import build_config
from tokpress.records import MANIFEST, PLAN, Plan, TokenizerFiles
from tokpress.run import coordinator, events, worker, writing
from tokpress.run.clusters.inline import InlineCluster
from tokpress.run.clusters.processes import ProcessCluster
from tokpress.run.events import BaseEvent, Event
from tokpress.run.plan import make_plan
from tokpress.storage.local import LocalStorage
from tokpress.storage.lock import LOCK, WriterLock

T = TypeVar("T", bound=BaseEvent)


def write_lines(path: Path, good: int, bad: int = 0) -> Path:
    lines = [json.dumps({"text": f"document number {i}"}) for i in range(good)] + ["not json"] * bad
    path.write_text("".join(line + "\n" for line in lines))
    return path


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "a.jsonl", 20)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestOutputDirectory:
    def test_is_made_with_its_parents(self, source: Path, tmp_path: Path) -> None:
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "a" / "b")
        assert len(tokpress.open(tmp_path / "a" / "b")) == len(store) == 20

    def test_may_exist_if_it_is_empty(self, source: Path, out: Path) -> None:
        out.mkdir()
        assert len(tokpress.build(source, tokenizer="bytes", out=out)) == 20

    def test_must_not_be_a_file(self, source: Path) -> None:
        with pytest.raises(UsageError, match="is a file"):
            tokpress.build(source, tokenizer="bytes", out=source)
        assert source.read_text()

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize(
        "name",
        ["notes.txt", "shards/mine.bin", "tokenizer/mine.json", PLAN, MANIFEST, "plan.json/x", "manifest.json/x"],
    )
    def test_must_not_hold_anything_else(self, source: Path, out: Path, name: str, overwrite: bool) -> None:
        """Also not what only looks like a store from afar: other tools write a plan.json, too."""
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text('{"mine": true}')
        (out / "shards").mkdir(exist_ok=True)
        (out / "shards" / "precious").write_text("mine")
        with pytest.raises(UsageError, match="not empty and not a store"):
            tokpress.build(source, tokenizer="bytes", out=out, overwrite=overwrite)
        assert (out / name).read_text() == '{"mine": true}'
        assert (out / "shards" / "precious").read_text() == "mine"

    def test_a_finished_store_is_not_made_again(self, source: Path, out: Path) -> None:
        first = tokpress.build(source, tokenizer="bytes", out=out)
        before = (out / MANIFEST).read_bytes()
        listener = Listener()
        again = tokpress.build(source, tokenizer="bytes", out=out, reporter=listener)
        assert listener.heard() == [events.Began, events.InputsFound, events.AlreadyFinished]
        assert again.manifest == first.manifest
        assert (out / MANIFEST).read_bytes() == before

    @pytest.mark.parametrize("resources", [{"workers": 7}, {"memory": "3GB"}, {"batch_bytes": 10}, {"pin": "cores"}])
    def test_nor_if_only_what_it_may_use_is_another(self, source: Path, out: Path, resources: dict[str, Any]) -> None:
        tokpress.build(source, tokenizer="bytes", out=out)
        listener = Listener()
        tokpress.build(source, tokenizer="bytes", out=out, reporter=listener, **resources)
        assert listener.heard() == [events.Began, events.InputsFound, events.AlreadyFinished]

    @pytest.mark.parametrize("finished", [True, False])
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"eos": False}, "options.eos_id: was 256, is nothing"),
            ({"text_field": "body"}, "options.text_field: was text, is body"),
            ({"shard_size": 77}, "options.shard_bytes: was 256000000, is 77"),
            ({"unit_size": 100}, "units: was 1 of them, is"),
            ({"max_doc_bytes": 99}, "options.max_doc_bytes: was 268435456, is 99"),
        ],
    )
    def test_a_store_of_other_options_is_refused_with_the_difference(
        self, source: Path, out: Path, options: dict[str, Any], said: str, finished: bool
    ) -> None:
        tokpress.build(source, tokenizer="bytes", out=out)
        if not finished:
            (out / MANIFEST).unlink()
        before = files_of(out)
        state = "a finished" if finished else "an unfinished"
        with pytest.raises(UsageError, match=rf"holds {state} store of something else") as raised:
            tokpress.build(source, tokenizer="bytes", out=out, **options)
        assert said in str(raised.value)
        assert "--overwrite" in str(raised.value)
        assert files_of(out) == before

    def test_a_store_of_other_inputs_is_refused(self, source: Path, out: Path) -> None:
        tokpress.build(source, tokenizer="bytes", out=out)
        write_lines(source, 21)
        with pytest.raises(UsageError, match=r"inputs\[0\]\.size: was \d+, is \d+"):
            tokpress.build(source, tokenizer="bytes", out=out)
        assert len(tokpress.open(out)) == 20

    def test_a_store_of_another_tokenizer_is_refused(self, source: Path, out: Path, bpe: Path) -> None:
        tokpress.build(source, tokenizer="bytes", out=out)
        before = files_of(out)
        with pytest.raises(UsageError, match=r"tokenizer\.fingerprint: was "):
            tokpress.build(source, tokenizer=bpe, out=out)
        assert files_of(out) == before

    def test_a_finished_store_is_overwritten_on_request(self, source: Path, out: Path, tmp_path: Path) -> None:
        tokpress.build(source, tokenizer="bytes", out=out, shard_size=10)
        store = tokpress.build(write_lines(tmp_path / "b.jsonl", 3), tokenizer="bytes", out=out, overwrite=True)
        assert len(store) == 3
        assert store.verify().ok  # no stranger is left

    @pytest.mark.parametrize("damaged", [PLAN, MANIFEST])
    def test_a_damaged_store_is_overwritten_on_request(self, source: Path, out: Path, damaged: str) -> None:
        tokpress.build(source, tokenizer="bytes", out=out)
        (out / damaged).write_bytes(b"?")
        assert tokpress.build(source, tokenizer="bytes", out=out, overwrite=True).verify().ok

    def test_an_unfinished_store_is_continued(self, source: Path, out: Path) -> None:
        tokpress.build(source, tokenizer="bytes", out=out, shard_size=100)
        before = stored(out)
        (out / MANIFEST).unlink()
        for name in ("shards/train-00000-003.json", "shards/train-00000-006.bin"):
            (out / name).unlink()
        (out / "shards" / "train-00000-003.bin.tmp").write_bytes(b"half")
        (out / "rejects" / "00007-000.jsonl").write_bytes(b"old")
        kept = out / "shards" / "train-00000-002.bin"
        untouched = kept.stat().st_mtime_ns
        listener = Listener()
        store = tokpress.build(source, tokenizer="bytes", out=out, shard_size=100, reporter=listener)
        assert listener.heard()[5:7] == [events.Resuming, events.Started]
        resumed = listener.one(events.Resuming)
        assert (resumed.units, resumed.units_left, resumed.docs) == (1, 1, 9)
        assert sum(event.docs for event in listener.all(events.Advanced)) == 11
        assert kept.stat().st_mtime_ns == untouched
        assert store.verify().ok
        assert stored(out) == before

    @pytest.mark.parametrize("lost", [1, 4, 5])
    def test_a_limit_counts_what_is_there_already(
        self, tmp_path: Path, out: Path, lost: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the units before and in the unit that is gone on with."""
        source = write_lines(tmp_path / "b.jsonl", 200)
        options: dict[str, Any] = {"tokenizer": "bytes", "out": out, "unit_size": 1000, "shard_size": 400, "limit": 50}
        store = tokpress.build(source, **options)
        before = stored(out)
        assert store.num_docs == 50
        shards = [shard for shard in store.manifest.splits["train"].shards if shard.docs]
        assert [shard.unit for shard in shards] == [0, 0, 0, 0, 1, 1]
        (out / MANIFEST).unlink()
        (out / shards[lost].path("json")).unlink()
        monkeypatch.setattr(
            coordinator, "cluster_for", lambda job, storage, **_: InlineCluster(job, storage)
        )  # it need not be a process
        assert tokpress.build(source, **options).num_docs == 50
        assert stored(out) == before

    def test_one_writer_at_a_time(self, source: Path, out: Path) -> None:
        with WriterLock(out), pytest.raises(StoreError, match="is being written by another run"):
            tokpress.build(source, tokenizer="bytes", out=out)
        assert len(tokpress.build(source, tokenizer="bytes", out=out)) == 20
        assert not (out / LOCK).exists()

    def test_is_not_touched_if_the_call_is_wrong(self, source: Path, out: Path) -> None:
        for options in ({"tokenizer": "/no/such.json"}, {"engine": "tiktoken"}, {"eos_token": "<none>"}):
            with pytest.raises(TokenizerError):
                tokpress.build(source, **({"tokenizer": "bytes", "out": out} | options))  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            tokpress.build("no-such-file.jsonl", tokenizer="bytes", out=out)
        assert not out.exists()


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            ("unit_size", 0, "--unit-size"),
            ("unit_size", "-5", "not a size"),
            ("shard_size", 0, "--shard-size"),
            ("shard_size", -1, "--shard-size"),
            ("max_doc_bytes", 0, "--max-doc-bytes"),
            ("batch_bytes", 0, "batch_bytes"),
            ("audit_rate", 1.5, "--audit-rate"),
            ("audit_rate", -0.1, "--audit-rate"),
            ("audit_rate", float("nan"), "--audit-rate"),
            ("workers", 0, "--workers"),
            ("max_rejects", "few", "--max-rejects"),
            ("max_rejects", "x%", "--max-rejects"),
            ("special_tokens", "Parse", "special_tokens"),
            ("engine", "warp", "engine"),
            ("text_field", 5, "text_field"),
            ("format", "docx", "--format"),
        ],
    )
    def test_that_make_no_sense_are_refused_before_anything_is_done(
        self, source: Path, out: Path, option: str, value: object, said: str
    ) -> None:
        with pytest.raises(UsageError, match=said):
            tokpress.build(source, tokenizer="bytes", out=out, **{option: value})  # type: ignore[arg-type]
        assert not out.exists()


class TestRejects:
    @pytest.mark.parametrize(
        ("good", "bad", "max_rejects"),
        [(20, 10, "1%"), (5, 10, "1%"), (2000, 20, "1%"), (10, 3, "3"), (20, 0, "0"), (100, 100, "50%")],
    )
    def test_up_to_the_limit_pass(self, tmp_path: Path, out: Path, good: int, bad: int, max_rejects: str) -> None:
        source = write_lines(tmp_path / "b.jsonl", good, bad)
        store = tokpress.build(source, tokenizer="bytes", out=out, max_rejects=max_rejects)
        assert (store.num_docs, store.manifest.totals.rejected) == (good, bad)
        assert store.verify().ok

    @pytest.mark.parametrize(
        ("good", "bad", "max_rejects"),
        [(20, 11, "1%"), (2000, 21, "1%"), (10, 4, "3"), (20, 1, "0"), (100, 102, "50%"), (0, 5000, "1%")],
    )
    def test_above_the_limit_stop_the_build(
        self, tmp_path: Path, out: Path, good: int, bad: int, max_rejects: str
    ) -> None:
        source = write_lines(tmp_path / "b.jsonl", good, bad)
        with pytest.raises(TooManyRejects, match=rf"more than --max-rejects {max_rejects} allows") as raised:
            tokpress.build(source, tokenizer="bytes", out=out, max_rejects=max_rejects, batch_bytes=1000)
        assert raised.value.exit_code == 3
        assert f"{source} at line {good + 1}: bad-json" in str(raised.value)  # the first of them
        assert str(raised.value).count(str(source)) == min(bad, 3)
        assert not (out / MANIFEST).exists()
        assert not list(out.rglob("*.tmp"))

    def test_a_build_that_was_stopped_goes_on_with_a_higher_limit(self, tmp_path: Path, out: Path) -> None:
        source = write_lines(tmp_path / "b.jsonl", 100, 102)
        with pytest.raises(TooManyRejects):
            tokpress.build(source, tokenizer="bytes", out=out, max_rejects="50%")
        store = tokpress.build(source, tokenizer="bytes", out=out, max_rejects="60%")
        assert (store.num_docs, store.manifest.totals.rejected) == (100, 102)
        assert store.verify().ok

    def test_stop_a_long_build_early(self, tmp_path: Path, out: Path) -> None:
        source = write_lines(tmp_path / "b.jsonl", 0, 10_000)
        listener = Listener()
        with pytest.raises(TooManyRejects):
            tokpress.build(source, tokenizer="bytes", out=out, batch_bytes=1000, reporter=listener)
        assert sum(event.rejects for event in listener.all(events.Advanced)) < 3000


class WrongEngine(Engine):
    """Equal to the reference but for documents with a certain word in them."""

    name = "gigatoken"

    def __init__(self, reference: Engine, word: str, *, shift: int = 1) -> None:
        self._reference = reference
        self.info = reference.info
        self._word = word
        self._shift = shift

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = self._reference.encode(text, threads=threads)
        ids = tokens.ids.copy()
        for i, document in enumerate(text.to_pylist()):
            if self._word in document:
                ids[tokens.ends[i] - 1] += self._shift
        return TokenBatch(ids, tokens.ends)

    def decode(self, ids: Any) -> str:
        return self._reference.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._reference.token_bytes(token)


@pytest.fixture
def wrong_about(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the fast engine wrong about documents with this word."""

    def make(word: str, *, sampled: bool = True, shift: int = 1) -> None:
        def fast_engine(name: str, files: TokenizerFiles, policy: str, reference: Engine) -> Engine:
            return WrongEngine(reference_engine(files, "text"), word, shift=shift)

        monkeypatch.setattr(choice, "fast_engine", fast_engine)
        if not sampled:
            monkeypatch.setattr(worker, "sample_texts", lambda *args, **kwargs: iter(()))

    return make


class TestProof:
    def test_an_equal_engine_is_used(self, source: Path, out: Path, bpe: Path) -> None:
        parity = tokpress.build(source, tokenizer=bpe, out=out).manifest.parity
        assert (parity.outcome, parity.engine, parity.reference) == ("equal", "gigatoken", "huggingface")
        assert parity.docs > 20

    def test_an_engine_that_differs_on_the_user_s_text_is_not(
        self, source: Path, out: Path, bpe: Path, wrong_about: Any
    ) -> None:
        wrong_about("number 7")
        store = tokpress.build(source, tokenizer=bpe, out=out)
        parity = store.manifest.parity
        assert (parity.outcome, parity.engine) == ("different", "huggingface")
        assert parity.difference is not None
        assert "number 7" in parity.difference.text
        assert [store.text(i) for i in range(20)] == [f"document number {i}" for i in range(20)]

    def test_an_engine_that_was_asked_for_and_differs_is_an_error(
        self, source: Path, out: Path, bpe: Path, wrong_about: Any
    ) -> None:
        wrong_about("number 7")
        with pytest.raises(ParityError, match=r"number 7.*--engine huggingface"):
            tokpress.build(source, tokenizer=bpe, out=out, engine="gigatoken")
        assert not out.exists()

    def test_the_audit_stops_an_engine_that_differs_later(
        self, source: Path, out: Path, bpe: Path, wrong_about: Any
    ) -> None:
        wrong_about("number 7", sampled=False)
        with pytest.raises(ParityError, match=r"the audit found .*number 7.*--engine huggingface"):
            tokpress.build(source, tokenizer=bpe, out=out, audit_rate=1.0)
        assert not (out / MANIFEST).exists()
        assert not list(out.rglob("*.tmp"))

    def test_the_audit_counts_what_it_compared(self, source: Path, out: Path, bpe: Path) -> None:
        audit = tokpress.build(source, tokenizer=bpe, out=out, audit_rate=1.0).manifest.audit
        assert (audit.rate, audit.docs) == (1.0, 20)

    def test_the_reference_needs_no_audit(self, source: Path, out: Path, bpe: Path) -> None:
        manifest = tokpress.build(source, tokenizer=bpe, out=out, engine="huggingface", audit_rate=1.0).manifest
        assert (manifest.parity.outcome, manifest.audit.rate, manifest.audit.docs) == ("not-needed", 0.0, 0)

    def test_an_id_outside_the_vocabulary_is_never_written(
        self, source: Path, out: Path, bpe: Path, wrong_about: Any
    ) -> None:
        wrong_about("number 7", sampled=False, shift=1_000_000)
        with pytest.raises(IdRangeError, match="outside its vocabulary"):
            tokpress.build(source, tokenizer=bpe, out=out, audit_rate=0)
        assert not (out / MANIFEST).exists()
        assert not list(out.rglob("*.tmp"))

    @pytest.mark.parametrize("engine", ["sentencepiece", "tiktoken", "huggingface", "gigatoken"])
    def test_an_engine_of_another_kind_is_refused(self, source: Path, out: Path, engine: Any) -> None:
        with pytest.raises(TokenizerError):
            tokpress.build(source, tokenizer="bytes", out=out, engine=engine)


class Listener:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        self.events.append(event)

    def heard(self) -> list[type[Event]]:
        """What happened, but for what happens often."""
        often = (events.Advanced, events.Rejected, events.Workers)
        return [type(event) for event in self.events if not isinstance(event, often)]

    def all(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[T]) -> T:
        [event] = self.all(kind)
        return event


def shown(listener: Listener) -> tuple[str, str, int]:
    first = listener.one(events.FirstDocument)
    return first.head, first.tail, first.tokens


class TestReporting:
    def test_a_build_tells_what_it_does(self, tmp_path: Path, out: Path) -> None:
        source = write_lines(tmp_path / "b.jsonl", 20, 2)
        listener = Listener()
        store = tokpress.build(source, tokenizer="bytes", out=out, reporter=listener)
        before = [events.Began, events.InputsFound, events.TokenizerLoaded, events.Proved, events.FirstDocument]
        assert listener.heard() == [*before, events.Started, events.UnitDone, events.Stopped, events.Finished]
        found, started, advanced = (
            listener.one(events.InputsFound),
            listener.one(events.Started),
            listener.all(events.Advanced),
        )
        assert (found.files, found.formats, found.stdin) == (1, ["jsonl"], False)
        assert found.bytes == started.bytes == sum(event.input_bytes for event in advanced) == source.stat().st_size
        assert (started.units, started.workers) == (1, 1)
        assert sum(event.docs for event in advanced) == 20
        assert sum(event.tokens for event in advanced) == store.num_tokens
        assert sum(event.rejects for event in advanced) == 2
        assert [reject.line for event in listener.all(events.Rejected) for reject in event.examples] == [21, 22]
        assert listener.one(events.Finished) == msgspec.structs.replace(
            events.Finished.of(store.url, store.manifest), time=listener.events[-1].time
        )

    def test_times_are_counted_from_the_beginning(self, source: Path, out: Path) -> None:
        listener = Listener()
        before = time()
        tokpress.build(source, tokenizer="bytes", out=out, reporter=listener)
        took = time() - before
        times = [event.time for event in listener.events]
        assert times == sorted(times)
        assert 0 <= times[0] < times[-1] < took + 1
        began = listener.one(events.Began)
        assert before - 1 < began.started_at < before + took + 1
        assert (began.store, began.version) == (str(out), tokpress.__version__)

    def test_a_plain_function_hears_the_same(self, source: Path, out: Path) -> None:
        heard: list[Event] = []
        tokpress.build(source, tokenizer="bytes", out=out, reporter=heard.append)
        assert (type(heard[0]), type(heard[-1])) == (events.Began, events.Finished)

    def test_what_a_reporter_raises_ends_the_run_which_goes_on_later(self, source: Path, out: Path) -> None:
        def interrupt(event: Event) -> None:
            if isinstance(event, events.Started):
                raise KeyboardInterrupt

        listener = Listener()
        with pytest.raises(KeyboardInterrupt):
            tokpress.build(source, tokenizer="bytes", out=out, reporter=events.join(listener, interrupt))
        assert listener.events[-1].time > 0
        assert listener.one(events.Failed).error == "KeyboardInterrupt"
        assert tokpress.build(source, tokenizer="bytes", out=out).num_docs == 20

    def test_the_first_document_is_shown_as_it_will_be_stored(self, source: Path, out: Path) -> None:
        listener = Listener()
        tokpress.build(source, tokenizer="bytes", out=out, reporter=listener)
        assert shown(listener) == ("document number 0<|endoftext|>", "", 18)

    def test_a_long_first_document_is_shown_by_its_ends(self, tmp_path: Path, out: Path) -> None:
        (tmp_path / "a.txt").write_text("begin" + "x" * 1000 + "end")
        listener = Listener()
        tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=out, reporter=listener)
        head, tail, tokens = shown(listener)
        assert head.startswith("begin")
        assert tail.endswith("end<|endoftext|>")
        assert tokens == 1009

    def test_a_failing_build_stops_the_bar(self, tmp_path: Path, out: Path) -> None:
        listener = Listener()
        with pytest.raises(TooManyRejects):
            tokpress.build(write_lines(tmp_path / "b.jsonl", 0, 20), tokenizer="bytes", out=out, reporter=listener)
        assert listener.heard()[-2:] == [events.Stopped, events.Failed]
        failed = listener.one(events.Failed)
        assert failed.error == "TooManyRejects"
        assert "records were rejected" in failed.message

    def test_a_wrong_call_is_told_as_well(self, source: Path, out: Path) -> None:
        listener = Listener()
        with pytest.raises(UsageError):
            tokpress.build(source, tokenizer="bytes", out=out, workers=0, reporter=listener)
        assert listener.heard() == [events.Began, events.Failed]

    def test_no_documents_are_a_store_without_documents(self, tmp_path: Path, out: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"")
        listener = Listener()
        store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=out, reporter=listener, limit=0)
        assert events.FirstDocument not in listener.heard()
        assert (store.num_docs, store.num_tokens) == (0, 0)
        assert store.verify().ok

    def test_how_it_went_stands_in_the_manifest(self, source: Path, out: Path) -> None:
        run = tokpress.build(source, tokenizer="bytes", out=out).manifest.run
        assert run.input_bytes == source.stat().st_size
        assert run.text_bytes == sum(len(f"document number {i}") for i in range(20))
        assert run.versions["tokpress"] == tokpress.__version__
        assert set(run.stage_seconds) == {"read", "parse", "encode", "audit", "write"}
        assert run.bottleneck in run.stage_seconds
        assert (run.workers, run.threads) == (1, max(usable_cores(), 1))
        assert run.peak_memory_bytes > 10**6


class TestInputs:
    def test_one_that_cannot_be_read_is_an_error_and_leaves_no_store(
        self, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*args: Any) -> Plan:
            source.unlink()
            return make_plan(*args)

        monkeypatch.setattr(writing, "make_plan", gone)
        with pytest.raises(InputError, match=r"cannot read .*a\.jsonl"):
            tokpress.build(source, tokenizer="bytes", out=out)
        assert not (out / MANIFEST).exists()

    def test_one_that_changes_while_others_are_read_is_an_error(self, tmp_path: Path, out: Path) -> None:
        """Half of the old one and half of the new would be of no use."""
        first, second = (write_lines(tmp_path / f"{name}.jsonl", 20) for name in "bc")

        def change(event: Event) -> None:
            if isinstance(event, events.Started):
                write_lines(second, 21)

        with pytest.raises(InputError, match=r"c\.jsonl was changed while it was being read.*--overwrite"):
            tokpress.build([first, second], tokenizer="bytes", out=out, reporter=change)
        assert not (out / MANIFEST).exists()

    @pytest.mark.parametrize("moment", [events.Advanced, events.Stopped], ids=["while it is read", "before the seal"])
    @pytest.mark.parametrize("limit", [None, 30], ids=["all of it", "the first of it"])
    def test_the_only_one_that_changes_is_an_error(
        self, tmp_path: Path, out: Path, moment: type[Event], limit: int | None
    ) -> None:
        """Overwritten in place by as many bytes: nothing but the file's own stamp can tell."""
        source = write_lines(tmp_path / "b.jsonl", 200)
        os.utime(source, (1, 1))

        def change(event: Event) -> None:
            if isinstance(event, moment):
                source.write_bytes(source.read_bytes().replace(b"document", b"doctored"))

        with pytest.raises(InputError, match=r"b\.jsonl was changed while it was being read.*--overwrite"):
            tokpress.build(source, tokenizer="bytes", out=out, reporter=change, batch_bytes=500, limit=limit)
        assert not (out / MANIFEST).exists()
        assert moment is events.Stopped or not list((out / "shards").glob("*.json"))  # nothing is vouched for

    def test_are_stored_in_the_order_given(self, tmp_path: Path, out: Path) -> None:
        for name in "cab":
            (tmp_path / f"{name}.txt").write_text(name)
        store = tokpress.build([tmp_path / f"{name}.txt" for name in "bca"], tokenizer="bytes", out=out)
        assert [store.text(i) for i in range(3)] == ["b", "c", "a"]


class TestDtype:
    @pytest.mark.parametrize("bos", [False, True])
    def test_is_the_smallest_for_the_whole_vocabulary(self, source: Path, out: Path, bos: bool) -> None:
        store = tokpress.build(source, tokenizer="bytes", out=out, bos=bos, bos_token="<|endoftext|>")
        assert store.dtype == np.dtype("<u2")
        assert store.manifest.bos_id == (256 if bos else None)
        assert store.doc(0).tolist() == ([256] if bos else []) + [*b"document number 0", 256]


@pytest.mark.parametrize("options", [{}, {"workers": 1}])
def test_a_run_that_goes_on_has_its_worker_in_a_process(tmp_path: Path, options: dict[str, Any]) -> None:
    """The one before may have died of a document: this one must survive it."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    storage = LocalStorage(tmp_path / "store")
    job = coordinator.make_job([tmp_path / "a.jsonl"], storage, build_config("bytes", options))  # type: ignore[arg-type]
    assert isinstance(coordinator.cluster_for(job, storage), InlineCluster)
    with coordinator.cluster_for(job, storage, resuming=True) as cluster:
        assert isinstance(cluster, ProcessCluster)
