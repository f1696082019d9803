"""A unit becomes shards: the same ones however it is read, each record accounted for, nothing half-written kept."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.batches import Reject, TokenBatch
from tokpress.config import BuildConfig, ReadConfig, StoreConfig, TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.framing import frame_for
from tokpress.engines.load import load_files, reference_engine
from tokpress.errors import TooManyRejects
from tokpress.run.coordinator import prepare_output
from tokpress.run.plan import make_plan
from tokpress.run.progress import StageClock
from tokpress.run.worker import Worker
from tokpress.sources.files import discover
from tokpress.store.manifest import MANIFEST, Counts, Receipt

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


def stored(directory: Path) -> dict[str, bytes]:
    """Every byte of a store but how its run went."""
    files = {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    manifest = json.loads(files[MANIFEST])
    del manifest["run"], manifest["checksum"]
    return files | {MANIFEST: json.dumps(manifest).encode()}


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

    @settings(max_examples=8, deadline=None)
    @given(batch_bytes=st.integers(1, 5000), shard_bytes=st.integers(1, 5000), unit_bytes=st.integers(500, 20_000))
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
            yield int(path.stem), msgspec.json.decode(line, type=Reject)


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

    def test_a_unit_without_any_has_no_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("fine")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        assert list((store.path / "rejects").iterdir()) == []


class FailingEngine:
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


def make_worker(directory: Path, inputs: list[Path], *, shard_bytes: int = 2000, batch_bytes: int = 200) -> Worker:
    config = BuildConfig(
        tokenizer=TokenizerConfig(spec="bytes"),
        read=ReadConfig(max_doc_bytes=900),
        store=StoreConfig(shard_bytes=shard_bytes),
    )
    files = load_files(config.tokenizer)
    engine = reference_engine(files, "text")
    frame = frame_for(config.tokenizer, engine.info)
    plan = make_plan(discover(inputs, config.read), config, engine.info, frame)
    prepare_output(directory, plan, files)
    return Worker(
        directory=directory,
        plan=plan,
        read=config.read,
        engine=engine,
        frame=frame,
        auditor=None,
        threads=1,
        batch_bytes=batch_bytes,
        shard_bytes=shard_bytes,
        clock=StageClock(),
    )


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.suffix == ".tmp"]


class TestFailure:
    @pytest.mark.parametrize("error", [RuntimeError("engine"), KeyboardInterrupt(), SystemExit(1)])
    @pytest.mark.parametrize("docs", [0, 50, 120])
    def test_leaves_whole_shards_and_nothing_else(
        self, tmp_path: Path, inputs: list[Path], error: BaseException, docs: int
    ) -> None:
        worker = make_worker(tmp_path, inputs)
        failing = replace(worker, engine=FailingEngine(worker.engine, docs, error))
        with pytest.raises(type(error)):
            failing.run(0, lambda batch, tokens: None)
        assert leftovers(tmp_path) == []
        assert list((tmp_path / "rejects").iterdir()) == []
        receipts = [path.stem for path in (tmp_path / "shards").glob("*.json")]
        assert {path.stem for path in (tmp_path / "shards").iterdir()} == set(receipts)
        assert bool(receipts) == (docs > 0)

    def test_what_was_finished_is_what_a_whole_run_writes(self, tmp_path: Path, inputs: list[Path]) -> None:
        whole = make_worker(tmp_path / "whole", inputs)
        whole.run(0, lambda batch, tokens: None)
        cut = make_worker(tmp_path / "cut", inputs)
        with pytest.raises(RuntimeError):
            replace(cut, engine=FailingEngine(cut.engine, 120, RuntimeError())).run(0, lambda batch, tokens: None)
        for path in (tmp_path / "cut" / "shards").iterdir():
            assert path.read_bytes() == (tmp_path / "whole" / "shards" / path.name).read_bytes()

    def test_too_many_rejects_are_kept_for_the_user_to_see(self, tmp_path: Path, inputs: list[Path]) -> None:
        worker = make_worker(tmp_path, inputs)
        seen = 0

        def stop_at_ten(batch: Any, tokens: Any) -> None:
            nonlocal seen
            seen += len(batch.rejects)
            if seen > 10:
                raise TooManyRejects("enough")

        with pytest.raises(TooManyRejects):
            worker.run(0, stop_at_ten)
        assert len((tmp_path / "rejects" / "00000.jsonl").read_bytes().splitlines()) == seen
        assert leftovers(tmp_path) == []

    def test_a_unit_can_be_run_again_after_a_failure(self, tmp_path: Path, inputs: list[Path]) -> None:
        worker = make_worker(tmp_path, inputs)
        with pytest.raises(RuntimeError):
            replace(worker, engine=FailingEngine(worker.engine, 60, RuntimeError())).run(0, lambda batch, tokens: None)
        result = worker.run(0, lambda batch, tokens: None)
        assert result.counts.written == sum(receipt.docs for receipt in result.receipts)
        assert leftovers(tmp_path) == []


class TestReporting:
    def test_every_batch_is_told(self, tmp_path: Path, inputs: list[Path]) -> None:
        heard = [0, 0, 0]

        def note(batch: Any, tokens: TokenBatch) -> None:
            heard[0] += len(tokens)
            heard[1] += len(tokens.ids)
            heard[2] += sum(reject.records for reject in batch.rejects)

        result = make_worker(tmp_path, inputs).run(0, note)
        counts = result.counts
        assert heard == [counts.written, sum(receipt.tokens for receipt in result.receipts), counts.rejected]
        assert sum(result.rejects.values()) == counts.rejected

    def test_the_stages_are_timed(self, tmp_path: Path, inputs: list[Path]) -> None:
        worker = make_worker(tmp_path, inputs)
        worker.run(0, lambda batch, tokens: None)
        assert set(worker.clock.seconds) == {"read", "encode", "write"}
        assert np.all(np.array(list(worker.clock.seconds.values())) > 0)
