"""A unit becomes shards: the same ones however it is read, each record accounted for, nothing half-written kept."""

from __future__ import annotations

import fcntl
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import stored
from hypothesis import given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.batches import TextBatch, TokenBatch, large_strings
from tokpress.documents.batching import place, set_aside
from tokpress.engines.base import Engine
from tokpress.engines.load import reference_engine
from tokpress.records import MANIFEST, Counts, Place, Receipt, Reject
from tokpress.run import worker as worker_module
from tokpress.run.gate import Room
from tokpress.run.messages import Advanced, Done, Encoding, Message, Prepare, Task
from tokpress.run.tasks import continued
from tokpress.run.worker import Worker
from tokpress.storage.local import LocalStorage
from tokpress.store.receipts import unit_receipts

from .jobs import SETTINGS, begin, shard_files

BAD_LINES = [b"not json", b'{"text": 5}', b'{"other": "x"}', b'{"text": "caf\xe9"}', b'{"text": "x', b"[]"]


def mixed_lines(count: int, seed: int) -> list[bytes]:
    """JSON lines, a fifth of them bad, some blank, some long."""
    rng = random.Random(seed)
    lines = []
    for i in range(count):
        text = rng.choice("aé日😀") * rng.choice([0, 1, 5, 40, 300])
        good = json.dumps({"id": i, "text": text}, ensure_ascii=rng.random() < 0.5).encode()
        lines.append(rng.choice([good] * 7 + [rng.choice(BAD_LINES)] * 2 + [b""]))
    return lines


def write_inputs(directory: Path) -> list[Path]:
    """One of each kind of input, with something bad in most of them."""
    jsonl = b"\n".join(mixed_lines(80, 1))
    (directory / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + jsonl)
    (directory / "b.jsonl.zst").write_bytes(zstandard.compress(b"\r\n".join(mixed_lines(60, 2)) + b"\r\n"))
    whole = gzip.compress(b"\n".join(mixed_lines(60, 3)), mtime=0)
    (directory / "c.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])
    column = pa.array([None if i % 7 == 0 else "row " * (i % 50) for i in range(90)])
    pq.write_table(pa.table({"text": column}), directory / "d.parquet", row_group_size=20)
    (directory / "e.txt").write_text("a file\nas one document\n")
    (directory / "f.txt").write_bytes(b"\xff not UTF-8")
    return sorted(directory.iterdir())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, inputs: list[Path]) -> Callable[..., tokpress.Store]:
    def run(**options: Any) -> tokpress.Store:
        usual: dict[str, Any] = {"tokenizer": "bytes", "unit_size": 3000, "shard_size": 1500, "max_doc_bytes": 900}
        out = tmp_path_factory.mktemp("out") / "store"
        return tokpress.build(inputs, out=out, max_rejects="100%", **(usual | options))

    return run


@pytest.fixture(scope="module")
def usual(build: Callable[..., tokpress.Store]) -> tokpress.Store:
    store = build()
    assert store.verify().ok
    assert len(store.manifest.units) > 5
    assert len(store.manifest.splits["train"].shards) > 20
    return store


class TestSameStore:
    """Output depends on inputs and options, never on how the work was done."""

    @pytest.mark.parametrize("batch_bytes", [1, 64, 100, 1000, 4096, 1_000_000])
    def test_whatever_the_batches(
        self, build: Callable[..., tokpress.Store], usual: tokpress.Store, batch_bytes: int
    ) -> None:
        assert stored(build(batch_bytes=batch_bytes).path) == stored(usual.path)

    @settings(max_examples=5, deadline=None)
    @given(batch_bytes=st.integers(1, 5000), shard_bytes=st.integers(50, 5000), unit_bytes=st.integers(500, 20_000))
    def test_whatever_the_batches_and_however_it_is_cut(
        self, build: Callable[..., tokpress.Store], batch_bytes: int, shard_bytes: int, unit_bytes: int
    ) -> None:
        cut = {"shard_size": shard_bytes, "unit_size": unit_bytes}
        store = build(batch_bytes=batch_bytes, **cut)
        assert stored(store.path) == stored(build(**cut).path)
        assert store.verify().ok

    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize("engine", ["huggingface", "gigatoken"])
    def test_whatever_the_workers_and_the_engine(
        self, build: Callable[..., tokpress.Store], bpe: Path, workers: int, engine: str
    ) -> None:
        store = build(tokenizer=bpe, workers=workers, engine=engine, batch_bytes=500)
        usual = build(tokenizer=bpe)
        ours, theirs = stored(store.path), stored(usual.path)
        for files in (ours, theirs):  # who encoded and how it was proved is told there
            manifest = json.loads(files.pop(MANIFEST))
            files["told"] = json.dumps({k: v for k, v in manifest.items() if k not in ("parity", "audit")}).encode()
        assert ours == theirs
        assert store.fingerprint == usual.fingerprint

    def test_documents_do_not_depend_on_how_they_are_cut(
        self, build: Callable[..., tokpress.Store], usual: tokpress.Store
    ) -> None:
        other = build(unit_size=700, shard_size=100)
        assert [doc.tolist() for doc in other] == [doc.tolist() for doc in usual]
        assert [other.where(i) for i in range(len(other))] == [usual.where(i) for i in range(len(usual))]


def shards(store: tokpress.Store) -> list[Receipt]:
    return store.manifest.splits["train"].shards


class TestShards:
    def test_end_with_the_document_that_fills_them(self, usual: tokpress.Store) -> None:
        sizes = iter(usual.doc_lengths() * usual.dtype.itemsize)
        for shard in shards(usual):
            own = [int(next(sizes)) for _ in range(shard.docs)]
            if shard.next_input is not None:
                assert sum(own) >= 1500
            assert sum(own[:-1]) < 1500

    def test_say_where_the_next_document_stands(self, usual: tokpress.Store) -> None:
        first = 0
        for shard, after in pairwise(shards(usual)):
            first += shard.docs
            if shard.next_input is None:
                assert after.unit == shard.unit + 1
                continue
            assert after.unit == shard.unit
            path, position = usual.where(first)
            assert (usual.plan.inputs[shard.next_input].path, shard.next_position) == (path, position)
        assert shards(usual)[-1].next_input is None

    def test_account_for_every_record(self, usual: tokpress.Store) -> None:
        for shard in shards(usual):
            assert shard.counts.read == shard.counts.written + shard.counts.rejected
            assert shard.counts.written == shard.docs
        assert any(shard.counts.rejected and shard.docs for shard in shards(usual))
        assert sum((shard.counts for shard in shards(usual)), Counts()) == usual.manifest.totals

    def test_count_the_rejects_before_the_next_document(self, usual: tokpress.Store) -> None:
        """So that going on from a receipt meets each reject once."""
        rejects = list(read_rejects(usual))
        for shard, after in pairwise(shards(usual)):
            if shard.next_input is None:
                continue
            upto = (shard.next_input, shard.next_position)
            counted = sum(s.counts.rejected for s in shards(usual) if s.unit == shard.unit and s.number <= shard.number)
            unit = [r for u, r in rejects if u == shard.unit]
            assert counted == sum(reject.records for reject in unit if (reject.input, reject.position) < upto)
            assert after.number == shard.number + 1


def read_rejects(store: tokpress.Store) -> Iterator[tuple[int, Reject]]:
    for path in sorted((store.path / "rejects").iterdir()):
        for line in path.read_bytes().splitlines():
            yield int(path.stem.split("-")[0]), msgspec.json.decode(line, type=Reject)


class TestRejects:
    def test_are_in_the_order_of_the_inputs(self, usual: tokpress.Store) -> None:
        places = [(unit, reject.input, reject.position) for unit, reject in read_rejects(usual)]
        assert places == sorted(places)

    def test_are_complete(self, usual: tokpress.Store) -> None:
        """Every record of the plain file is either written or rejected, and stands where it is said to stand."""
        path = next(source.path for source in usual.plan.inputs if source.path.endswith("a.jsonl"))
        data = Path(path).read_bytes()
        rejected = {reject.position: reject for _, reject in read_rejects(usual) if reject.source == path}
        written = {usual.where(i)[1]: usual.text(i) for i in range(len(usual)) if usual.where(i)[0] == path}
        position = 0
        for number, line in enumerate(data.split(b"\n"), start=1):
            record = line.removeprefix(b"\xef\xbb\xbf")
            if position in written:
                assert json.loads(record)["text"] == written.pop(position)
            elif position in rejected:
                assert rejected.pop(position).line == number
            else:
                assert not record
            position += len(line) + 1
        assert not written
        assert not rejected

    def test_add_up_by_reason(self, usual: tokpress.Store) -> None:
        reasons: dict[str, int] = {}
        for _, reject in read_rejects(usual):
            reasons[reject.reason] = reasons.get(reject.reason, 0) + reject.records
        assert reasons == usual.manifest.rejects
        assert set(reasons) == {"bad-json", "missing-field", "wrong-type", "invalid-utf8", "too-large", "damaged-input"}

    def test_each_shard_lists_those_met_on_the_way_to_it(self, usual: tokpress.Store) -> None:
        for shard in shards(usual):
            path = usual.path / "rejects" / f"{shard.unit:05d}-{shard.number:03d}.jsonl"
            lines = path.read_bytes().splitlines() if path.exists() else []
            reasons = Counter[str]()
            for line in lines:
                reject = msgspec.json.decode(line, type=Reject)
                reasons[reject.reason] += reject.records
            assert reasons == shard.rejects
            assert path.exists() == bool(shard.rejects)
        assert len(list((usual.path / "rejects").iterdir())) > 5


class FailingEngine(Engine):
    """Fails after so many documents."""

    name = "failing"

    def __init__(self, inner: Engine, docs: int, error: BaseException) -> None:
        self._inner = inner
        self.info = inner.info
        self._docs = docs
        self._error = error

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        self._docs -= len(text)
        if self._docs < 0:
            raise self._error
        return self._inner.encode(text, threads=threads)

    def decode(self, ids: Any) -> str:
        return self._inner.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._inner.token_bytes(token)


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.suffix == ".tmp"]


class Unit:
    """One unit of all the inputs, a worker that writes it, and what that worker says."""

    def __init__(self, directory: Path, inputs: list[Path], **options: Any) -> None:
        self.job, plan = begin(directory, inputs, **options)
        assert len(plan.units) == 1
        self.directory = directory
        self.task = Task(unit=0, slices=plan.units[0])
        self.worker = Worker(self.job, LocalStorage(self.job.url))
        self.worker.configure(SETTINGS)
        self.heard: list[Message] = []

    def run(self, **changes: Any) -> list[Receipt]:
        self.heard.clear()
        self.worker.run(msgspec.structs.replace(self.task, **changes), self.heard.append)
        self.worker.settle(self.heard.append)
        done = self.heard.pop()
        assert isinstance(done, Done)
        assert done.unit == 0
        self.stage_seconds = done.stage_seconds
        return unit_receipts(LocalStorage(self.directory), 0)

    def advanced(self) -> list[Advanced]:
        return [message for message in self.heard if isinstance(message, Advanced)]

    def encoding(self) -> list[Encoding]:
        return [message for message in self.heard if isinstance(message, Encoding)]


@pytest.fixture
def unit(tmp_path: Path, inputs: list[Path]) -> Unit:
    return Unit(tmp_path / "store", inputs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, inputs: list[Path]) -> Unit:
    """The unit, written at once."""
    unit = Unit(tmp_path_factory.mktemp("whole"), inputs)
    assert len(unit.run()) > 5
    return unit


def fail_after(monkeypatch: pytest.MonkeyPatch, docs: int, error: BaseException) -> None:
    """The tokenizers of workers that are made from now on fail after so many documents."""

    def failing(*arguments: Any) -> FailingEngine:
        return FailingEngine(reference_engine(*arguments), docs, error)

    monkeypatch.setattr(worker_module, "reference_engine", failing)


class TestFailure:
    @pytest.mark.parametrize("error", [RuntimeError("engine"), KeyboardInterrupt(), SystemExit(1)])
    @pytest.mark.parametrize("docs", [0, 50, 120])
    def test_leaves_whole_shards_and_nothing_else(
        self,
        tmp_path: Path,
        inputs: list[Path],
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        docs: int,
        whole: Unit,
    ) -> None:
        fail_after(monkeypatch, docs, error)
        failing = Unit(tmp_path, inputs)
        with pytest.raises(type(error)):
            failing.run()
        assert leftovers(tmp_path) == []
        receipts = unit_receipts(LocalStorage(tmp_path), 0)
        assert bool(receipts) == (docs > 0)
        assert {path.stem for path in (tmp_path / "shards").iterdir()} == {receipt.name for receipt in receipts}
        rejects = {f"{receipt.unit:05d}-{receipt.number:03d}" for receipt in receipts if receipt.rejects}
        assert {path.stem for path in (tmp_path / "rejects").iterdir()} == rejects
        assert shard_files(tmp_path).items() <= shard_files(whole.directory).items()

    def test_a_unit_can_be_run_again_after_a_failure(
        self, tmp_path: Path, inputs: list[Path], monkeypatch: pytest.MonkeyPatch, whole: Unit
    ) -> None:
        with monkeypatch.context() as patch:
            fail_after(patch, 60, RuntimeError())
            unit = Unit(tmp_path, inputs)
            with pytest.raises(RuntimeError):
                unit.run()
        again = Worker(unit.job, LocalStorage(unit.job.url))
        again.configure(SETTINGS)
        again.run(unit.task, unit.heard.append)
        again.settle(unit.heard.append)
        assert shard_files(tmp_path) == shard_files(whole.directory)


class TestGoingOn:
    def test_from_any_receipt_gives_the_same_files(self, tmp_path: Path, inputs: list[Path], whole: Unit) -> None:
        """Every receipt says enough to go on after it: in any input, at a document, with each reject met once."""
        receipts = unit_receipts(LocalStorage(whole.directory), 0)
        files = shard_files(whole.directory)
        assert len({receipt.next_input for receipt in receipts}) > 3
        for last in receipts[:-1]:
            unit = Unit(tmp_path / str(last.number), inputs)
            left = continued(unit.task, receipts[: last.number + 1])
            assert left is not None
            assert left.first_shard == last.number + 1
            unit.worker.run(left, unit.heard.append)
            unit.worker.settle(unit.heard.append)
            written = shard_files(unit.directory)
            kept = {name: data for name, data in files.items() if int(Path(name).stem.split("-")[-1]) > last.number}
            assert written == kept

    def test_after_the_last_receipt_there_is_nothing_left(self, whole: Unit) -> None:
        assert continued(whole.task, unit_receipts(LocalStorage(whole.directory), 0)) is None


class TestSaying:
    def test_every_batch_is_told(self, unit: Unit) -> None:
        receipts = unit.run()
        counts = sum((receipt.counts for receipt in receipts), Counts())
        told = unit.advanced()
        assert sum(message.docs for message in told) == counts.written > 0
        assert sum(message.rejects for message in told) == counts.rejected > 0
        assert sum(message.tokens for message in told) == sum(receipt.tokens for receipt in receipts)
        examples = [reject for message in told for reject in message.examples]
        assert examples
        assert all(len(message.examples) <= 3 for message in told)

    def test_what_is_about_to_be_encoded_is_announced_before(self, unit: Unit) -> None:
        unit.run()
        announced: Encoding | None = None
        for message in unit.heard:
            if isinstance(message, Advanced) and message.docs:
                assert announced is not None
                announced = None
            elif isinstance(message, Encoding):
                assert message.first <= message.last
                announced = message
        places = [(message.first, message.last) for message in unit.encoding()]
        assert places == sorted(places)

    def test_the_stages_are_timed(self, unit: Unit) -> None:
        unit.run()
        assert set(unit.stage_seconds) == {"read", "parse", "encode", "audit", "write"}
        assert np.all(np.array(list(unit.stage_seconds.values())) > 0)


def places_of(store: Unit) -> list[Place]:
    """Where each document of the unit stands."""
    places = []
    for receipt in unit_receipts(LocalStorage(store.directory), 0):
        positions = iter(np.fromfile(store.directory / receipt.path("pos"), "<i8").tolist())
        places += [(source, next(positions)) for source, docs in receipt.sources for _ in range(docs)]
    return places


class TestCare:
    """A batch that killed a worker is encoded one document at a time."""

    def test_documents_in_the_range_are_announced_one_by_one(self, unit: Unit, whole: Unit) -> None:
        places = places_of(whole)
        first, last = places[20], places[40]
        unit.run(careful=(first, last))
        alone = [message.first for message in unit.encoding() if message.first == message.last]
        assert set(places[20:41]) <= set(alone)
        assert len(alone) < len(places) / 2
        assert shard_files(unit.directory) == shard_files(whole.directory)

    def test_documents_out_of_range_are_not(self, unit: Unit, whole: Unit) -> None:
        unit.run()
        usual = unit.encoding()
        unit.run(careful=((77, 0), (78, 0)))
        assert unit.encoding() == usual


class TestQuarantine:
    def test_a_quarantined_document_is_a_reject_and_all_else_is_as_it_was(self, unit: Unit, whole: Unit) -> None:
        places = places_of(whole)
        culprits = {places[0]: "crashed-tokenizer", places[33]: "hung-tokenizer", places[-1]: "out-of-memory"}
        receipts = unit.run(quarantined=culprits)
        assert places_of(unit) == [place for place in places if place not in culprits]
        counts = sum((receipt.counts for receipt in receipts), Counts())
        before = sum((receipt.counts for receipt in unit_receipts(LocalStorage(whole.directory), 0)), Counts())
        assert counts == Counts(read=before.read, written=before.written - 3, rejected=before.rejected + 3)
        listed = [
            msgspec.json.decode(line, type=Reject)
            for name, data in sorted(shard_files(unit.directory).items())
            if name.startswith("rejects/")
            for line in data.splitlines()
        ]
        assert [(reject.input, reject.position) for reject in listed] == sorted(
            (reject.input, reject.position) for reject in listed
        )
        found = {(reject.input, reject.position): reject.reason for reject in listed}
        assert culprits.items() <= found.items()

    @given(st.lists(st.text(max_size=5), min_size=1, max_size=12), st.data())
    def test_takes_exactly_those_out_of_a_batch(self, texts: list[str], data: st.DataObject) -> None:
        batch = TextBatch(
            text=large_strings(texts),
            positions=np.arange(len(texts), dtype=np.int64) * 7,
            sources=np.zeros(len(texts), np.int32),
            input=0,
            next_position=1000,
            input_bytes=99,
            rejects=[Reject(source="a.jsonl", input=0, position=7 * i + 3, reason="bad", detail="") for i in range(3)],
        )
        chosen = data.draw(st.sets(st.integers(0, len(texts) - 1)))
        inputs = SimpleNamespace(path="a.jsonl")
        left = set_aside(batch, {place(batch, i): "why" for i in chosen}, "said", [inputs])  # type: ignore[list-item]
        kept = [i for i in range(len(texts)) if i not in chosen]
        assert left.text.to_pylist() == [texts[i] for i in kept]
        assert [place(left, i) for i in range(len(left))] == [place(batch, i) for i in kept]
        assert [(reject.position, reject.reason) for reject in left.rejects] == sorted(
            [*((7 * i, "why") for i in chosen), (3, "bad"), (10, "bad"), (17, "bad")]
        )
        assert {reject.source for reject in left.rejects} == {"a.jsonl"}
        assert (left.input_bytes, left.next_position) == (99, 1000)


class TestEngine:
    def test_is_loaded_once_and_used_for_all_units(
        self, tmp_path: Path, inputs: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loaded: list[str] = []

        def load(*arguments: Any) -> Engine:
            loaded.append("reference")
            return reference_engine(*arguments)

        monkeypatch.setattr(worker_module, "reference_engine", load)
        job, plan = begin(tmp_path, inputs, unit_bytes=3000)
        worker = Worker(job, LocalStorage(job.url))
        worker.prepare(Prepare())
        worker.configure(SETTINGS)
        for number, slices in enumerate(plan.units):
            worker.run(Task(unit=number, slices=slices), lambda message: None)
        assert len(plan.units) > 5
        assert loaded == ["reference"]

    def test_after_a_large_record_others_have_their_turn(self, tmp_path: Path, inputs: list[Path]) -> None:
        room = Room(ordinary=1, share=2, most=10**9, budget=10**9)  # every record is a large one
        with (tmp_path / "lock").open("w") as lock:
            job, plan = begin(tmp_path / "store", inputs)
            worker = Worker(job, LocalStorage(job.url), lock.fileno())
            worker.configure(msgspec.structs.replace(SETTINGS, room=room))
            worker.run(Task(unit=0, slices=plan.units[0]), lambda message: None)
            with (tmp_path / "lock").open() as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError if the worker has it
            worker.settle(lambda message: None)

    @pytest.mark.parametrize(("attempt", "sampled"), [(0, True), (1, True), (2, False), (3, False)])
    def test_after_two_deaths_it_leaves_the_inputs_alone(
        self, tmp_path: Path, inputs: list[Path], attempt: int, sampled: bool
    ) -> None:
        job, _ = begin(tmp_path, inputs)
        prepared = Worker(job, LocalStorage(job.url)).prepare(Prepare(attempt=attempt))
        assert (prepared.first_document is not None) == sampled

    def test_what_it_found_out_is_for_all_workers(self, tmp_path: Path, inputs: list[Path]) -> None:
        job, plan = begin(tmp_path, inputs)
        prepared = Worker(job, LocalStorage(job.url)).prepare(Prepare())
        assert prepared.info == plan.tokenizer
        assert (prepared.parity.outcome, prepared.parity.engine) == ("not-needed", "bytes")
        assert prepared.frame.eos_id == 256
        assert prepared.footprint > 10**6
        assert prepared.first_document is not None
        assert prepared.first_document.tokens > 0
