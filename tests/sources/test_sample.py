"""A sample comes from all over the inputs, keeps to its budget, and is the same every time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpress.config import ReadConfig
from tokpress.sources.files import discover
from tokpress.sources.sample import head, sample_texts

from .reading import COMPRESSORS, TABLE_KINDS, compress, jsonl, write, write_table

DOC_BYTES = 100


def documents(count: int, first: int = 0) -> list[str]:
    """Numbered texts of the same size."""
    return [f"{i:08d}".ljust(DOC_BYTES, ".") for i in range(first, first + count)]


def sample(*paths: Path, total_bytes: int, max_doc_bytes: int | None = None, **options: Any) -> list[str]:
    config = ReadConfig(**options)
    drawn = sample_texts(discover(paths, config), config, total_bytes=total_bytes, max_doc_bytes=max_doc_bytes)
    return [text for array in drawn for text in array.to_pylist()]


def numbers(texts: list[str]) -> list[int]:
    return [int(text[:8]) for text in texts]


class TestSpread:
    def test_over_a_large_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", jsonl(documents(10_000)))
        drawn = numbers(sample(path, total_bytes=64 * DOC_BYTES))
        assert {number * 32 // 10_000 for number in drawn} == set(range(32))  # something from every part
        assert drawn == sorted(set(drawn))

    def test_over_the_row_groups_of_a_parquet_file(self, tmp_path: Path) -> None:
        path = write_table(tmp_path / "a", pa.table({"text": documents(3200)}), "parquet", rows=100)
        drawn = numbers(sample(path, total_bytes=64 * DOC_BYTES))
        assert {number // 100 for number in drawn} == set(range(32))

    @pytest.mark.parametrize("files", [3, 40])
    def test_over_many_files(self, tmp_path: Path, files: int) -> None:
        for i in range(files):
            write(tmp_path / f"{i:02d}.jsonl", jsonl(documents(100, first=1000 * i)))
        drawn = numbers(sample(tmp_path, total_bytes=320 * DOC_BYTES))
        seen = {number // 1000 for number in drawn}
        assert len(seen) == min(files, 32)
        assert min(seen) == 0
        assert max(seen) >= files - 2

    def test_what_small_files_lack_larger_ones_give(self, tmp_path: Path) -> None:
        write(tmp_path / "a.jsonl", jsonl(documents(1)))
        write(tmp_path / "b.jsonl", jsonl(documents(10_000)))
        drawn = sample(tmp_path, total_bytes=1000 * DOC_BYTES)
        assert 900 <= len(drawn) <= 1000


class TestBudget:
    @pytest.mark.parametrize("budget", [1, 100, 5_000, 100_000])
    @pytest.mark.parametrize("kind", [*COMPRESSORS, *TABLE_KINDS])
    def test_is_kept_and_used(self, tmp_path: Path, kind: str, budget: int) -> None:
        texts = documents(2000)
        if kind in TABLE_KINDS:
            path = write_table(tmp_path / "a", pa.table({"text": texts}), kind, rows=100)
        else:
            path = write(tmp_path / f"a.jsonl{kind}", compress(jsonl(texts), kind))
        drawn = sample(path, total_bytes=budget)
        assert set(drawn) <= set(texts)
        used = sum(map(len, drawn))
        assert max(budget // 2, 1) <= used <= budget + 32 * DOC_BYTES  # every place gives at least one document

    @pytest.mark.parametrize("kind", [*COMPRESSORS, *TABLE_KINDS])
    def test_larger_than_the_inputs_draws_every_document_once(self, tmp_path: Path, kind: str) -> None:
        texts = documents(500)
        if kind in TABLE_KINDS:
            path = write_table(tmp_path / "a", pa.table({"text": texts}), kind, rows=100)
        else:
            path = write(tmp_path / f"a.jsonl{kind}", compress(jsonl(texts), kind))
        assert sample(path, total_bytes=10**7) == texts

    def test_documents_are_cut_to_their_heads(self, tmp_path: Path) -> None:
        texts = ["short", "é" * 1000, "", "x" * 1000]
        path = write(tmp_path / "a.jsonl", jsonl(texts))
        assert sample(path, total_bytes=10**6, max_doc_bytes=101) == ["short", "é" * 50, "", "x" * 101]

    def test_one_huge_document_uses_it_up(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", jsonl(["x" * 10**6, *documents(1000)]))
        assert sample(path, total_bytes=10**5) == ["x" * 10**6]

    @given(text=st.text(st.characters(exclude_categories=["Cs"])), size=st.integers(0, 50))
    @settings(deadline=None)
    def test_a_head_is_whole_characters(self, text: str, size: int) -> None:
        cut = head(text.encode(), size)
        assert text.startswith(cut)
        assert len(cut.encode()) <= size
        assert len(cut) == len(text) or len(text[: len(cut) + 1].encode()) > size


def test_the_same_inputs_give_the_same_sample(tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path / f"{i}.jsonl", jsonl(documents(3000, first=3000 * i)))
    assert sample(tmp_path, total_bytes=50_000) == sample(tmp_path, total_bytes=50_000)


class TestBadInputs:
    def test_bad_records_are_passed_over(self, tmp_path: Path) -> None:
        lines = jsonl(documents(200)).splitlines(keepends=True)
        path = write(tmp_path / "a.jsonl", b"not json\n".join(lines))
        assert sample(path, total_bytes=10**6) == documents(200)

    def test_a_truncated_file_gives_what_it_has(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl.gz", compress(jsonl(documents(200)), ".gz")[:-50])
        assert numbers(sample(path, total_bytes=10**6))[:100] == list(range(100))

    def test_where_no_record_has_text_the_search_ends_early(self, tmp_path: Path) -> None:
        """A wrong --text-field must not cost a pass over a terabyte before the build says so."""
        noise = random.Random(0)
        path = tmp_path / "a.jsonl.gz"
        for records, found in [(100, ["at the end"]), (2000, [])]:
            lines = [b'{"no": "%s"}\n' % noise.randbytes(500).hex().encode() for _ in range(records)]
            write(path, compress(b"".join(lines) + jsonl(["at the end"]), ".gz"))
            assert sample(path, total_bytes=1000) == found


def test_of_standard_input_is_its_head_and_leaves_it_whole() -> None:
    script = """
import sys, json
from tokpress.config import ReadConfig
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts
config = ReadConfig()
inputs = discover(["-"], config)
drawn = [t for array in sample_texts(inputs, config, total_bytes=1000) for t in array.to_pylist()]
texts = [t for batch in open_reader(inputs[0], 0, config, 1000).read() for t in batch.text.to_pylist()]
print(json.dumps([drawn, texts]))
"""
    texts = documents(20_000)
    done = subprocess.run([sys.executable, "-c", script], input=jsonl(texts), capture_output=True, check=True)
    assert json.loads(done.stdout) == [texts[:10], texts]
