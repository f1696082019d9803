"""CSV and TSV: the fields that Python's own `csv` finds, and a reject that says what is wrong with every other record."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import HARD_TEXTS, make_texts
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import InputError
from tokpress.records import BAD_CSV, DAMAGED_INPUT, INVALID_UTF8, TOO_LARGE

from .reading import (
    BATCH_SIZES,
    BOM,
    COMPRESSORS,
    PACKED,
    compress,
    joined,
    measure,
    outcome,
    read,
    reader_of,
    same,
    write,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv")


def table(rows: Sequence[Sequence[str]], **options: Any) -> bytes:
    file = io.StringIO()
    csv.writer(file, **options).writerows(rows)
    return file.getvalue().encode()


def numbered(texts: Sequence[str], **options: Any) -> bytes:
    return table([["id", "text", "n.o"], *([str(i), text, "x"] for i, text in enumerate(texts))], **options)


class TestRoundTrip:
    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("extension", COMPRESSORS)
    def test_every_text_comes_back(self, tmp_path: Path, extension: str, batch_bytes: int) -> None:
        texts = [*make_texts(60), *HARD_TEXTS]
        path = write(tmp_path / f"a.csv{extension}", compress(numbered(texts), extension, members=3))
        result = read(path, batch_bytes=batch_bytes)
        assert result.texts == texts
        assert result.rejects == []

    def test_fields_between_tabs(self, tmp_path: Path) -> None:
        texts = ["a, b", "tab\tinside", 'quo"te', "two\nlines", ""]
        path = write(tmp_path / "a.tsv", numbered(texts, delimiter="\t"))
        assert read(path).texts == texts
        assert read(write(tmp_path / "a.data", path.read_bytes()), format="tsv").texts == texts

    @settings(deadline=None, max_examples=200)
    @given(
        lines=st.lists(st.lists(st.text('ab ,"\n', max_size=9), min_size=1, max_size=3).map(",".join), max_size=12),
        batch_bytes=st.sampled_from([64, 65, 70, 1000]),
        end=st.sampled_from(["\n", "\r\n"]),
    )
    @example(lines=['5" pipe,x', '6" pipe,y', '"in ""quotes""",z'], batch_bytes=64, end="\n")
    @example(lines=['"a"b"c,x', "d,e"], batch_bytes=64, end="\n")
    @example(lines=["x" * 62 + ',""', '"", "', '"""",""""'], batch_bytes=64, end="\n")
    def test_a_record_is_what_pythons_csv_makes_of_it(
        self, folder: Path, lines: list[str], batch_bytes: int, end: str
    ) -> None:
        body = "".join(line + end for line in lines)
        data = f"text,b{end}{body}"
        rows = [row for row in csv.reader(io.StringIO(data, newline="")) if row][1:]
        result = read(write(folder / "a.csv", data.encode()), batch_bytes=batch_bytes)
        damaged = result.reasons[-1:] == [DAMAGED_INPUT]  # a quote that is never closed: `csv` takes what there is
        rows = rows[:-1] if damaged else rows
        assert result.texts == [row[0] for row in rows if len(row) == 2]
        assert result.reasons.count(BAD_CSV) == sum(len(row) != 2 for row in rows)

    def test_positions_are_byte_offsets_of_the_records(self, tmp_path: Path) -> None:
        lines = [BOM + b"text,id\r\n", b'"a\nb",1\r\n', b"\r\n", "é,2\n".encode(), b"c,3"]
        path = write(tmp_path / "a.csv", b"".join(lines))
        result = read(path)
        offsets = [sum(map(len, lines[:i])) for i in (1, 3, 4)]
        assert result.documents == list(zip(offsets, ["a\nb", "é", "c"], strict=True))
        for position, text in result.documents:  # and a record can be read from there on
            assert read(path, position).texts[0] == text

    @pytest.mark.parametrize("data", [b"", BOM, b"\n\n", b"text", b"text,id\n", BOM + b"\r\ntext,id\r\n\r\n"])
    def test_a_file_without_records(self, tmp_path: Path, data: bytes) -> None:
        assert read(write(tmp_path / "a.csv", data)).records == 0

    def test_a_field_of_100_megabytes(self, tmp_path: Path) -> None:
        text = '0123456789 "naïve", ☃\n' * 4_500_000
        data = numbered(["before", text, "after"])
        assert len(data) > 100 * 1024**2
        result = measure(write(tmp_path / "a.csv", data), write(tmp_path / "small.csv", numbered(["a"])))
        assert result["documents"] == 3
        assert result["sha256"] == hashlib.sha256(f"before{text}after".encode()).hexdigest()
        assert result["growth"] < 8 * len(data)


class TestColumns:
    @pytest.mark.parametrize("field", ["meta.body", r"meta\.body"])
    def test_a_dotted_field_is_the_column_of_that_name(self, tmp_path: Path, field: str) -> None:
        path = write(tmp_path / "a.csv", b'"meta.body",body\nx,no\n')
        assert read(path, text_field=field).texts == ["x"]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({}, r"a\.csv has no column 'text'. Columns, as its first row names them: id, body, x, x.*--text-field"),
            ({"text_field": "x"}, "has more than one column 'x'"),
            ({"text_field": "body", "keep": ("url",)}, "has no column 'url'.*--keep"),
            ({"text_field": "body", "required": ("answer",)}, "has no column 'answer'.*--completion-field"),
        ],
    )
    def test_that_are_not_there_are_told_with_those_that_are(
        self, tmp_path: Path, options: dict[str, Any], words: str
    ) -> None:
        path = write(tmp_path / "a.csv", b"id,body,x,x\n1,2,3,4\n")
        with pytest.raises(InputError, match=words):
            read(path, **options)

    @pytest.mark.parametrize("header", [b"\xff,text", b'"text' + b"x" * 300])
    def test_a_first_row_that_names_nothing_is_an_error(self, tmp_path: Path, header: bytes) -> None:
        path = write(tmp_path / "a.csv", header + b"\n1,2\n")
        with pytest.raises(InputError, match=r"the first row of .*a\.csv should name the columns"):
            read(path, max_doc_bytes=100)

    def test_kept_ones_are_text(self, tmp_path: Path) -> None:
        data = table([["id", "text", "meta.url"], ["1", "a", ""], ["02", "b", "http://x"], ["3", "c", "é"]])
        path = write(tmp_path / "a.csv", data)
        store = tokpress.build(path, tokenizer="bytes", out=tmp_path / "s", keep=["id", "meta.url"])
        assert [store.kept(i) for i in range(3)] == [
            {"id": "1", "meta.url": ""},
            {"id": "02", "meta.url": "http://x"},
            {"id": "3", "meta.url": "é"},
        ]

    def test_prompts_and_chats_and_templates(self, tmp_path: Path) -> None:
        (tmp_path / "t.jinja").write_text("{{ q }}={% loss %}{{ a }}{% endloss %}")
        path = write(tmp_path / "a.csv", table([["a", "q"], ["4", "2+2"], ["", "0+0"]]))
        asked = tokpress.build(
            path, tokenizer="bytes", out=tmp_path / "s", prompt_field="q", completion_field="a", keep_empty_loss=True
        )
        assert [asked.text(i) for i in range(2)] == ["2+24", "0+0"]
        rendered = tokpress.build(path, tokenizer="bytes", out=tmp_path / "t", template=tmp_path / "t.jinja", eos=False)
        assert [rendered.text(i) for i in range(1)] == ["2+2=4"]


class TestBadRecords:
    DATA = b'id,text\n1,a\n2,"b\nb"\n3,c,d\n4\n5,\xff\n6,bare \r return\n7,"return \r inside"\n8,h\n'
    TOLD = ((5, BAD_CSV), (6, BAD_CSV), (7, INVALID_UTF8), (8, BAD_CSV))

    @pytest.mark.parametrize("batch_bytes", [64, 70, 4096])
    def test_are_rejected_with_their_line(self, tmp_path: Path, batch_bytes: int) -> None:
        path = write(tmp_path / "a.csv", self.DATA)
        result = read(path, batch_bytes=batch_bytes)
        assert result.texts == ["a", "b\nb", "return \r inside", "h"]
        assert [(reject.line, reject.reason) for reject in result.rejects] == list(self.TOLD)
        lines = self.DATA.split(b"\n")
        for reject in result.rejects:
            assert reject.line is not None
            assert reject.position == len(b"\n".join(lines[: reject.line - 1])) + 1
        assert "3 fields, but the first row names 2 columns" in result.rejects[0].detail
        assert "carriage return" in result.rejects[3].detail

    def test_of_standard_input_too(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "tokpress", "build", "-", "--format", "csv.gz", "--tokenizer", "bytes"]
        command += ["--out", str(tmp_path / "s"), "--quiet"]
        done = subprocess.run(command, input=compress(self.DATA, ".gz"), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        [rejects] = (tmp_path / "s" / "rejects").iterdir()
        told = [json.loads(line) for line in rejects.read_text().splitlines()]
        assert [(reject["line"], reject["reason"]) for reject in told] == list(self.TOLD)

    @pytest.mark.parametrize("batch_bytes", [64, 4096])
    def test_over_the_limit_are_passed_over(self, tmp_path: Path, batch_bytes: int) -> None:
        big = "line\n" * 100
        path = write(tmp_path / "a.csv", numbered(["a", big, "b"]) + b"1,2\n")
        result = read(path, batch_bytes=batch_bytes, max_doc_bytes=300)
        assert result.texts == ["a", "b"]
        assert [(reject.line, reject.reason) for reject in result.rejects] == [(3, TOO_LARGE), (105, BAD_CSV)]

    def test_a_quote_that_is_never_closed_loses_the_rest(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", b'id,text\n1,a\n2,"b\n3,c\n')
        result = read(path)
        assert result.texts == ["a"]
        assert [(reject.line, reject.reason) for reject in result.rejects] == [(3, DAMAGED_INPUT)]
        assert "never closed" in result.rejects[0].detail

    @pytest.mark.parametrize("extension", PACKED)
    def test_a_truncated_file_keeps_what_can_be_read(self, tmp_path: Path, extension: str) -> None:
        texts = make_texts(300)
        data = compress(numbered(texts), extension, members=4)
        result = read(write(tmp_path / f"a.csv{extension}", data[: len(data) * 4 // 5]))
        assert result.reasons == [DAMAGED_INPUT]
        assert 0 < len(result.texts) < len(texts)
        assert result.texts == texts[: len(result.texts)]


class TestPositions:
    def test_a_file_is_never_cut(self, tmp_path: Path) -> None:
        reader = reader_of(write(tmp_path / "a.csv", numbered(make_texts(50))))
        assert reader.cuts(100) == [0]
        assert reader.probe(0.5) == 0

    def test_reading_goes_on_from_any_batch(self, tmp_path: Path) -> None:
        data = numbered(make_texts(40)) + b"bad\n" + numbered(['"', "\n"])
        path = write(tmp_path / "a.csv", data)
        whole = read(path)
        parts = read(path, batch_bytes=64)
        for batch in parts.batches:
            if batch.next_position:
                before = [part for part in parts.batches if part.next_position <= batch.next_position]
                rest = read(path, batch.next_position)
                assert same(joined([outcome(before), rest]), whole)

    def test_a_killed_build_ends_with_the_same_bytes(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", numbered(make_texts(80)))
        options: dict[str, Any] = {"tokenizer": "bytes", "shard_size": 500}
        whole = tokpress.build(path, out=tmp_path / "whole", **options)
        assert whole.verify().ok
        part = tmp_path / "part"
        tokpress.build(path, out=part, **options)
        (part / "manifest.json").unlink()
        for receipt in sorted((part / "shards").glob("*.json"))[2:]:
            receipt.unlink()
        again = tokpress.build(path, out=part, **options)
        assert again.manifest.fingerprint == whole.manifest.fingerprint
        assert again.verify().ok
