"""`verify --deep` compares a store with its sources, through the reference."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from store import tampering

import tokpress
from tokpress.options import BuildOptions
from tokpress.records import SHARDS, SpecialTokenPolicy
from tokpress.run import deep
from tokpress.run.deep import Reencoded, reencode_sample
from tokpress.sources.base import Reader, open_reader

TEXTS = [f"document {i} " + "word " * (i % 9) for i in range(60)]
TEXTS[7] = ""
Writer = Callable[[Path, list[str]], list[Path]]


def jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def write(name: str, pack: Callable[[list[str]], bytes]) -> Writer:
    def writer(directory: Path, texts: list[str]) -> list[Path]:
        (directory / name).write_bytes(pack(texts))
        return [directory / name]

    return writer


def write_parquet(directory: Path, texts: list[str]) -> list[Path]:
    pq.write_table(pa.table({"text": texts}), directory / "a.parquet", row_group_size=8)
    return [directory / "a.parquet"]


def write_arrow(directory: Path, texts: list[str]) -> list[Path]:
    table = pa.table({"text": texts})
    with pa.OSFile(str(directory / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=8)
    return [directory / "a.arrow"]


def write_files(directory: Path, texts: list[str]) -> list[Path]:
    paths = [directory / f"{i:02d}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


WRITERS: dict[str, Writer] = {
    "jsonl": write("a.jsonl", jsonl),
    "jsonl with a byte order mark": write("a.jsonl", lambda texts: b"\xef\xbb\xbf" + jsonl(texts)),
    "jsonl.zst": write("a.jsonl.zst", lambda texts: zstandard.compress(jsonl(texts))),
    "jsonl.gz": write("a.jsonl.gz", lambda texts: gzip.compress(jsonl(texts))),
    "parquet": write_parquet,
    "arrow": write_arrow,
    "text": write_files,
}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> Writer:
    return WRITERS[request.param]


def build(directory: Path, inputs: list[Path]) -> tokpress.Store:
    return tokpress.build(inputs, tokenizer="bytes", out=directory / "store", shard_size=200, unit_size=500)


class TestEveryFormat:
    def test_an_unchanged_source_is_equal(self, tmp_path: Path, writer: Writer) -> None:
        result = reencode_sample(build(tmp_path, writer(tmp_path, TEXTS)), 1000)
        assert (result.docs, result.problems) == (len(TEXTS), [])

    @pytest.mark.parametrize("changed", [0, 31, 59])
    def test_a_changed_document_is_found(self, tmp_path: Path, writer: Writer, changed: int) -> None:
        store = build(tmp_path, writer(tmp_path, TEXTS))
        other = list(TEXTS)
        other[changed] = other[changed].replace("document", "dokument")
        writer(tmp_path, other)
        result = reencode_sample(store, 1000)
        assert len(result.problems) == 1
        assert result.problems[0].file == f"shards/{store.shard_of(changed)}.bin"
        assert f"document {changed} is not what" in result.problems[0].message

    def test_a_source_that_became_shorter_is_found(self, tmp_path: Path, writer: Writer) -> None:
        paths = writer(tmp_path, TEXTS)
        store = build(tmp_path, paths)
        if len(paths) > 1:
            paths[-1].write_text("")
        writer(tmp_path, TEXTS[:50])
        assert reencode_sample(store, 1000).problems

    def test_a_source_that_is_gone_is_one_problem(self, tmp_path: Path, writer: Writer) -> None:
        paths = writer(tmp_path, TEXTS)
        store = build(tmp_path, paths)
        paths[0].unlink()
        problems = reencode_sample(store, 1000).problems
        assert [problem.file for problem in problems] == [str(paths[0])]
        assert "cannot" in problems[0].message

    def test_a_changed_id_in_the_store_is_found(self, tmp_path: Path, writer: Writer) -> None:
        store = build(tmp_path, writer(tmp_path, TEXTS))
        changed = len(store) // 2
        forge_id(store, changed)
        forged = tokpress.open(store.path)
        assert forged.verify().ok  # the forger knows the format
        problems = reencode_sample(forged, 1000).problems
        assert [problem.file for problem in problems] == [f"shards/{store.shard_of(changed)}.bin"]
        assert f"document {changed} is not what the reference makes of" in problems[0].message


def test_a_changed_mask_is_found(tmp_path: Path) -> None:
    source = tmp_path / "qa.jsonl"
    source.write_text("".join(json.dumps({"q": f"question {i}", "a": f"answer {i}"}) + "\n" for i in range(20)))
    fields: BuildOptions = {"prompt_field": "q", "completion_field": "a"}
    store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", **fields)
    assert reencode_sample(store, 1000) == Reencoded(docs=20, problems=[])
    forge(store, 7, "mask", lambda mask, end: mask.__setitem__(slice(end - 13, end), np.roll(mask[end - 13 : end], -1)))
    forged = tokpress.open(store.path)
    assert forged.verify().ok
    [problem] = reencode_sample(forged, 1000).problems
    assert "document 7 is not what the reference makes of" in problem.message


def forge_id(store: tokpress.Store, doc: int) -> None:
    """Changes the last id before a document's EOS and every checksum that vouches for it."""
    forge(store, doc, "bin", lambda ids, end: ids.__setitem__(end - 2, ids[end - 2] - 1))


def forge(store: tokpress.Store, doc: int, extension: str, change: Callable[[Any, int], object]) -> None:
    """Changes what a shard has up to the end of a document, and every checksum that vouches for it."""
    shard, number_in_shard = store._locate(doc)
    path = store.path / f"{SHARDS}/{store.shard_of(doc)}.{extension}"
    values = np.fromfile(path, store.dtype if extension == "bin" else np.uint8)
    change(values, int(shard.ends[number_in_shard]))
    values.tofile(path)
    tampering.forge(store.path)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Fails when it is called a second time."""
    calls = iter([function])
    return lambda *args: next(calls)(*args)


class TestSample:
    @pytest.mark.parametrize("docs", [1, 2, 7, 60])
    def test_has_the_size_asked_for(self, tmp_path: Path, docs: int) -> None:
        store = build(tmp_path, WRITERS["jsonl"](tmp_path, TEXTS))
        assert reencode_sample(store, docs).docs == docs

    def test_of_an_empty_store_is_empty(self, tmp_path: Path) -> None:
        inputs = WRITERS["jsonl"](tmp_path, TEXTS)
        store = tokpress.build(inputs, tokenizer="bytes", out=tmp_path / "store", limit=0)
        assert reencode_sample(store, 10).docs == 0

    def test_reads_a_compressed_file_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = build(tmp_path, WRITERS["jsonl.zst"](tmp_path, TEXTS))
        opened: list[Reader] = []

        def counting(*args: Any) -> Reader:
            opened.append(open_reader(*args))
            monkeypatch.setattr(opened[-1], "read", once(opened[-1].read))
            return opened[-1]

        monkeypatch.setattr(deep, "open_reader", counting)
        assert reencode_sample(store, 30).docs == 30
        assert len(opened) == 1

    @pytest.mark.parametrize("batch_bytes", [1, 100, 1000])
    def test_finds_the_first_documents_of_a_compressed_file_s_batches(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
    ) -> None:
        store = build(tmp_path, WRITERS["jsonl.zst"](tmp_path, TEXTS))
        monkeypatch.setattr(deep, "_BATCH_BYTES", batch_bytes)
        assert reencode_sample(store, 60) == Reencoded(docs=60, problems=[])

    def test_keeps_the_options_of_the_build(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"meta": {"body": "one"}}\n{"meta": {"body": "two"}}\n')
        store = tokpress.build(
            tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", text_field="meta.body", eos=False
        )
        assert reencode_sample(store, 10) == Reencoded(docs=2, problems=[])

    def test_finds_separated_documents_again(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("one---two---three")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store", separator="---")
        assert len(store) == 3
        assert reencode_sample(store, 10) == Reencoded(docs=3, problems=[])

    def test_goes_through_the_reference_with_the_policy_of_the_build(self, tmp_path: Path, bpe: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(jsonl(["a<|endoftext|>b", "x"]))
        policies: tuple[SpecialTokenPolicy, ...] = ("text", "parse")
        for policy in policies:
            store = tokpress.build(
                tmp_path / "a.jsonl",
                tokenizer=bpe,
                out=tmp_path / policy,
                special_tokens=policy,
            )
            assert reencode_sample(store, 10) == Reencoded(docs=2, problems=[])
