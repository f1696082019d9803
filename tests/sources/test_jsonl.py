"""JSON lines: the text of every good record, byte for byte, and a reject that says what is wrong with every other."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from conftest import HARD_TEXTS, make_texts
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.records import BAD_JSON, DAMAGED_INPUT, INVALID_UTF8, MISSING_FIELD, TOO_LARGE, WRONG_TYPE

from .reading import (
    BATCH_SIZES,
    BIG_BATCH,
    BOM,
    COMPRESSORS,
    PACKED,
    compress,
    joined,
    jsonl,
    measure,
    read,
    read_ranges,
    same,
    write,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl")


class TestRoundTrip:
    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("extension", COMPRESSORS)
    def test_every_text_comes_back(self, tmp_path: Path, extension: str, batch_bytes: int) -> None:
        texts = make_texts(60)
        path = write(tmp_path / f"a.jsonl{extension}", compress(jsonl(texts), extension, members=3))
        result = read(path, batch_bytes=batch_bytes)
        assert result.texts == texts
        assert result.rejects == []

    @settings(deadline=None, max_examples=60)
    @given(data=st.data(), batch_bytes=st.sampled_from(BATCH_SIZES))
    def test_however_the_lines_are_written(self, folder: Path, data: st.DataObject, batch_bytes: int) -> None:
        texts = data.draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=100), max_size=20))
        blanks = st.text(" \t\r", max_size=3)
        file = data.draw(st.sampled_from(["", BOM.decode()]))
        ends = []
        for i, text in enumerate(texts):
            record = {"before": [i, {"text": "no"}], "text": text, "after": None}
            written = json.dumps(record, ensure_ascii=data.draw(st.booleans()))
            ends.append(data.draw(st.sampled_from(["\n", "\r\n", "\n\n", "\r\n \t\r\n"])))
            file += data.draw(blanks) + written + data.draw(blanks) + ends[-1]
        if data.draw(st.booleans()) and texts:
            file = file.removesuffix(ends[-1])
        result = read(write(folder / "a.ndjson", file.encode()), batch_bytes=batch_bytes)
        assert result.texts == texts
        assert result.rejects == []

    def test_positions_are_byte_offsets_of_the_lines(self, tmp_path: Path) -> None:
        lines = [b'{"text": "a"}\n', b"\n", '{"text": "é"}\r\n'.encode(), b' {"text": "c"}']
        result = read(write(tmp_path / "a.jsonl", b"".join(lines)))
        offsets = [sum(map(len, lines[:i])) for i in (0, 2, 3)]
        assert result.documents == list(zip(offsets, ["a", "é", "c"], strict=True))

    @pytest.mark.parametrize("data", [b"", BOM, b"\n", b"\r\n\n  \n", BOM + b"\n"])
    def test_a_file_without_records(self, tmp_path: Path, data: bytes) -> None:
        assert read(write(tmp_path / "a.jsonl", data)).records == 0

    def test_a_line_of_100_megabytes(self, tmp_path: Path) -> None:
        text = "0123456789 naïve ☃\n" * 5_000_000
        line = json.dumps({"text": text}, ensure_ascii=False).encode()
        assert len(line) > 100 * 1024**2
        small = write(tmp_path / "small.jsonl", jsonl(["a"]))
        result = measure(write(tmp_path / "a.jsonl", jsonl(["before"]) + line + b"\n" + jsonl(["after"])), small)
        assert result["documents"] == 3
        assert result["sha256"] == hashlib.sha256(f"before{text}after".encode()).hexdigest()
        assert result["growth"] < 8 * len(line)


class TestTextField:
    @pytest.mark.parametrize(
        ("field", "record"),
        [
            ("text", {"text": "x"}),
            ("content", {"text": "no", "content": "x"}),
            ("a.b", {"a": {"b": "x"}, "b": "no", "a.b": "no"}),
            ("a.b.c", {"a": {"b": {"c": "x", "b": 1}}}),
            (r"a\.b", {"a": {"b": "no"}, "a.b": "x"}),
            (r"a\.b.c", {"a.b": {"c": "x"}}),
            ("naïve field 😀", {"naïve field 😀": "x"}),
            ("", {"": "x"}),
        ],
    )
    @pytest.mark.parametrize("ascii_only", [True, False])
    def test_is_a_dotted_path(self, tmp_path: Path, field: str, record: dict[str, Any], ascii_only: bool) -> None:
        line = json.dumps(record, ensure_ascii=ascii_only).encode()
        assert read(write(tmp_path / "a.jsonl", line), text_field=field).texts == ["x"]

    @pytest.mark.parametrize("record", [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}, {"a.b": "x"}])
    def test_missing_at_any_level(self, tmp_path: Path, record: dict[str, Any]) -> None:
        result = read(write(tmp_path / "a.jsonl", json.dumps(record).encode()), text_field="a.b")
        assert result.reasons == [MISSING_FIELD]
        assert "'a.b'" in result.rejects[0].detail
        assert "--text-field" in result.rejects[0].detail

    @pytest.mark.parametrize("record", [{"a": 5}, {"a": ["b"]}, {"a": {"b": 5}}, {"a": {"b": {}}}, {"a": "b"}])
    def test_of_a_wrong_type_at_any_level(self, tmp_path: Path, record: dict[str, Any]) -> None:
        assert read(write(tmp_path / "a.jsonl", json.dumps(record).encode()), text_field="a.b").reasons == [WRONG_TYPE]

    def test_that_json_cannot_have_here_is_an_error(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", b"{}")
        with pytest.raises(UsageError, match="--text-field"):
            read(path, text_field='quo"te')


BAD_LINES = {
    b"not json": BAD_JSON,
    b"null": BAD_JSON,
    b"5": BAD_JSON,
    b'"text"': BAD_JSON,
    b'["text"]': BAD_JSON,
    b'{"text": "a"': BAD_JSON,
    b'{"text": "a"} trailing': BAD_JSON,
    b'{"text": "a"}{"text": "b"}': BAD_JSON,
    b'{"text": "a"} {"text": "b"}': BAD_JSON,
    b'{"text": "a"},': BAD_JSON,
    b'{"text": "a",}': BAD_JSON,
    b'{"text": "a" "b": 1}': BAD_JSON,
    b"{'text': 'a'}": BAD_JSON,
    b'{"text": "tab\tinside"}': BAD_JSON,
    b'{"text": "nul\0inside"}': BAD_JSON,
    b'{"text": "\\x"}': BAD_JSON,
    b'{"text": "\\u12"}': BAD_JSON,
    b'{"other": 01, "text": "a"}': BAD_JSON,
    b'{"other": "\x01", "text": "a"}': BAD_JSON,
    b'{"text": "a", "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}": BAD_JSON,
    BOM + b'{"text": "a byte order mark is no mark in the middle of a file"}': BAD_JSON,
    b"{}": MISSING_FIELD,
    b'{"text": null}': MISSING_FIELD,
    b'{"Text": "a"}': MISSING_FIELD,
    b'{"text": 5}': WRONG_TYPE,
    b'{"text": ["a"]}': WRONG_TYPE,
    b'{"text": {"text": "a"}}': WRONG_TYPE,
    b'{"text": true}': WRONG_TYPE,
    b'{"text": "\xff"}': INVALID_UTF8,
    b'{"text": "\xc3"}': INVALID_UTF8,
    b'{"text": "\xed\xa0\x80"}': INVALID_UTF8,
    b'{"text": "\xc0\x80"}': INVALID_UTF8,
    b'{"text": "\\ud83d"}': INVALID_UTF8,
    b'{"text": "cut emoji \\ud83d and more"}': INVALID_UTF8,
    b'{"text": "\\ude00"}': INVALID_UTF8,
}
GOOD_LINES = {
    b'{"text": "plain"}': "plain",
    b'{"text": ""}': "",
    b'  {"text": "spaces"}\t': "spaces",
    b'{"text": "\\ud83d\\ude00"}': "😀",
    b'{"text": "\\u0000 \\t \\u001f"}': "\0 \t \x1f",
    b'{"text": "first", "text": "last"}': "last",
    b'{"\\u0074ext": "escaped key"}': "escaped key",
    b'{"text": "NaN elsewhere", "score": NaN}': "NaN elsewhere",
    b'{"text": "infinite", "score": [-Infinity, 1e999]}': "infinite",
    b'{"text": "half a pair elsewhere", "title": "\\ud83d"}': "half a pair elsewhere",
    b'{"text": "bad bytes elsewhere", "title": "\xff"}': "bad bytes elsewhere",
    b'{"text": "deep", "deep": ' + b"[" * 400 + b"]" * 400 + b"}": "deep",
}


class TestBadLines:
    @pytest.mark.parametrize(("line", "reason"), BAD_LINES.items())
    def test_is_rejected_with_its_place_and_reason(self, tmp_path: Path, line: bytes, reason: str) -> None:
        before = b'{"text": "before"}\n\n'
        path = write(tmp_path / "a.jsonl", before + line + b'\n{"text": "after"}\n')
        result = read(path)
        assert result.texts == ["before", "after"]
        [reject] = result.rejects
        assert (reject.position, reject.line, reject.reason) == (len(before), 3, reason)
        assert reject.preview == line[:80].decode("utf-8", "backslashreplace")

    @pytest.mark.parametrize(("line", "text"), GOOD_LINES.items())
    def test_is_not_what_it_looks_like(self, tmp_path: Path, line: bytes, text: str) -> None:
        assert read(write(tmp_path / "a.jsonl", line)).texts == [text]

    def test_details_tell_what_to_look_for(self, tmp_path: Path) -> None:
        lines = [b'{"text": "a"', b'{"text": 5}', b"{}{}", b'{"a": "\xff", "text": "\xff"}', b'{"text": "\\ud83d"}']
        result = read(write(tmp_path / "a.jsonl", b"\n".join(lines)))
        for reject, words in zip(
            result.rejects, ["not closed", "got `int`", "2 JSON objects", "0xff", "surrogate"], strict=True
        ):
            assert words in reject.detail

    @settings(deadline=None, max_examples=60)
    @given(
        lines=st.lists(st.sampled_from([*BAD_LINES, *GOOD_LINES, b"", b" \t"]), max_size=25).filter(
            lambda lines: not lines or not lines[0].startswith(BOM)  # which is a mark there, and good
        ),
        batch_bytes=st.sampled_from(BATCH_SIZES),
        end=st.sampled_from([b"\n", b"\r\n"]),
    )
    def test_fate_does_not_depend_on_the_neighbours(
        self, folder: Path, lines: list[bytes], batch_bytes: int, end: bytes
    ) -> None:
        result = read(write(folder / "a.jsonl", b"".join(line + end for line in lines)), batch_bytes=batch_bytes)
        offsets = [sum(len(line + end) for line in lines[:i]) for i in range(len(lines))]
        good = [(offset, GOOD_LINES[line]) for offset, line in zip(offsets, lines, strict=True) if line in GOOD_LINES]
        bad = [
            (offset, number, BAD_LINES[line])
            for number, (offset, line) in enumerate(zip(offsets, lines, strict=True), start=1)
            if line in BAD_LINES
        ]
        assert result.documents == good
        assert [(reject.position, reject.line, reject.reason) for reject in result.rejects] == bad
        assert result.records == sum(bool(line.strip()) for line in lines)

    @settings(deadline=None, max_examples=300)
    @given(
        line=st.sampled_from([line for line in [*BAD_LINES, *GOOD_LINES] if len(line) < 100]),
        edits=st.lists(st.tuples(st.integers(0, 100), st.sampled_from(b'{}[]",:\\u0nt \tae1-.\xc3\xa9')), max_size=3),
        insert=st.booleans(),
    )
    @example(line=b'{"text": "a", "text": null}', edits=[], insert=True)
    def test_agrees_with_pythons_json(
        self, folder: Path, line: bytes, edits: Sequence[tuple[int, int]], insert: bool
    ) -> None:
        for place, byte in edits:
            line = line[:place] + bytes([byte]) + line[place + (not insert) :]
        result = read(write(folder / "a.jsonl", line))
        assert result.texts == python_says(line)
        assert result.records == bool(line.strip())


def python_says(line: bytes) -> list[str]:
    """The text of a line by the standard library. Bytes that are not UTF-8 matter in the text alone."""
    try:
        record = json.loads(line.removeprefix(BOM).decode("utf-8", "surrogateescape"))
        text = record["text"]
        text.encode()
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return []
    return [text]


class TestOversized:
    LIMIT = 200

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("excess", [1, 2, 3, 50, 5000])
    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
    def test_is_rejected_and_its_neighbours_kept(
        self, tmp_path: Path, batch_bytes: int, excess: int, end: bytes
    ) -> None:
        long = b'{"text": "%s"}' % (b"x" * (self.LIMIT + excess - 12))
        assert len(long) == self.LIMIT + excess
        after = b'{"text": "after"}' if end else b""
        path = write(tmp_path / "a.jsonl", b'{"text": "before"}\n' + long + end + after)
        result = read(path, batch_bytes=batch_bytes, max_doc_bytes=self.LIMIT)
        assert result.texts == ["before", "after"][: 2 if end else 1]
        [reject] = result.rejects
        assert (reject.position, reject.line, reject.reason) == (19, 2, TOO_LARGE)
        assert reject.preview == long[:80].decode()
        assert f"takes {len(long + end):,} bytes, the limit is 200" in reject.detail
        assert "--max-doc-bytes" in reject.detail

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
    @pytest.mark.parametrize("mark", [b"", BOM])
    def test_a_line_at_the_limit_is_good(self, tmp_path: Path, batch_bytes: int, end: bytes, mark: bytes) -> None:
        line = b'{"text": "%s"}' % (b"x" * (self.LIMIT - 12))
        path = write(tmp_path / "a.jsonl", mark + line + end)
        assert read(path, batch_bytes=batch_bytes, max_doc_bytes=len(line)).rejects == []
        assert read(path, batch_bytes=batch_bytes, max_doc_bytes=len(line) - 1).reasons == [TOO_LARGE]

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    def test_spaces_count(self, tmp_path: Path, batch_bytes: int) -> None:
        path = write(tmp_path / "a.jsonl", b" " * 300 + b'{"text": "a"}\n' + b" " * 300 + b'\n{"text": "b"}')
        result = read(path, batch_bytes=batch_bytes, max_doc_bytes=self.LIMIT)
        assert result.texts == ["b"]
        assert result.reasons == [TOO_LARGE, TOO_LARGE]

    @pytest.mark.parametrize("extension", [".zst", ".gz"])
    def test_a_bomb_is_never_loaded(self, tmp_path: Path, extension: str) -> None:
        """A gigabyte on one line, in a hundred kilobytes or so."""
        start, filling, end = b'{"text": "before"}\n{"text": "', bytes(16_000_000).replace(b"\0", b"x"), b'"}\n'
        if extension == ".gz":
            packed = gzip.compress(start) + gzip.compress(filling, 1) * 64 + gzip.compress(end + start[:19])
        else:  # one frame, so that a little of it gives as much as can be
            frame = zstandard.ZstdCompressor().compressobj()
            packed = frame.compress(start) + b"".join(frame.compress(filling) for _ in range(64))
            packed += frame.compress(end + start[:19]) + frame.flush()
        small = write(tmp_path / f"small.jsonl{extension}", compress(jsonl(["a"]), extension))
        result = measure(write(tmp_path / f"bomb.jsonl{extension}", packed), small)
        assert (result["documents"], result["reasons"]) == (2, [TOO_LARGE])
        assert result["growth"] < 500_000_000  # the limit of 256 MiB, once, and what a feed gives, twice


class TestDamagedFiles:
    TEXTS = make_texts(60)

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("extension", PACKED)
    def test_readable_records_are_kept(self, tmp_path: Path, extension: str, batch_bytes: int) -> None:
        plain = jsonl(self.TEXTS)
        whole = compress(plain[: len(plain) // 2], extension)
        path = write(tmp_path / f"a.jsonl{extension}", whole + compress(plain[len(plain) // 2 :], extension)[:-20])
        result = read(path, batch_bytes=batch_bytes)
        kept = plain[: len(plain) // 2].count(b"\n")
        assert len(result.texts) >= kept
        assert result.texts == self.TEXTS[: len(result.texts)]
        [reject] = result.rejects
        assert reject.reason == DAMAGED_INPUT
        assert "truncated" in reject.detail
        assert reject.position == plain_offset(plain, len(result.texts))
        assert reject.line == len(result.texts) + 1
        assert result.records == len(result.texts) + 1

    @pytest.mark.parametrize("extension", PACKED)
    def test_corrupt_data_keeps_what_stands_before(self, tmp_path: Path, extension: str) -> None:
        plain = jsonl(self.TEXTS)
        path = write(tmp_path / f"a.jsonl{extension}", compress(plain, extension) + b"no such member")
        result = read(path)
        assert result.texts == self.TEXTS
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.line) == (DAMAGED_INPUT, len(plain), len(self.TEXTS) + 1)
        assert f"corrupt {extension[1:]} data" in reject.detail

    @pytest.mark.parametrize("extension", PACKED)
    def test_the_batch_size_makes_no_difference(self, tmp_path: Path, extension: str) -> None:
        path = write(tmp_path / f"a.jsonl{extension}", compress(jsonl(self.TEXTS), extension)[:-30])
        big, small = read(path), read(path, batch_bytes=64)
        assert same(big, small)

    def test_not_compressed_at_all(self, tmp_path: Path) -> None:
        result = read(write(tmp_path / "a.jsonl.gz", jsonl(["a"])))
        assert (result.texts, result.reasons) == ([], [DAMAGED_INPUT])
        assert (result.rejects[0].position, result.rejects[0].line) == (0, 1)


def plain_offset(data: bytes, line: int) -> int:
    return sum(len(part) + 1 for part in data.split(b"\n")[:line])


mixed_lines = st.lists(
    st.sampled_from([*BAD_LINES, *GOOD_LINES, b"", b" ", b'{"text": "%s"}' % (b"x" * 300)]),
    max_size=12,
)


class TestPlaces:
    """Ranges and restarts. The whole file, read at once, is the measure."""

    @settings(deadline=None, max_examples=60)
    @given(
        lines=mixed_lines,
        mark=st.sampled_from([b"", BOM]),
        cuts=st.lists(st.integers(0, 1500), max_size=5),
        batch_bytes=st.sampled_from([64, 200, BIG_BATCH]),
    )
    @example(lines=[b"[]", b"{}", b"x"], mark=b"", cuts=[3], batch_bytes=BIG_BATCH)
    @example(lines=[*GOOD_LINES], mark=BOM, cuts=[1, 2, 3], batch_bytes=BIG_BATCH)
    def test_any_ranges_give_every_record_once_and_in_order(
        self, folder: Path, lines: list[bytes], mark: bytes, cuts: list[int], batch_bytes: int
    ) -> None:
        path = write(folder / "a.jsonl", mark + b"\n".join(lines))
        parts = read_ranges(path, cuts, batch_bytes, max_doc_bytes=250)
        assert same(joined(parts), read(path, max_doc_bytes=250))

    @settings(deadline=None, max_examples=40)
    @given(
        lines=mixed_lines,
        mark=st.sampled_from([b"", BOM]),
        extension=st.sampled_from(list(COMPRESSORS)),
        lost=st.sampled_from([0, 5]),
        batch_bytes=st.sampled_from([64, 200, BIG_BATCH]),
    )
    def test_reading_goes_on_from_any_batch_and_any_document(
        self, folder: Path, lines: list[bytes], mark: bytes, extension: str, lost: int, batch_bytes: int
    ) -> None:
        data = compress(mark + b"\n".join(lines), extension)
        path = write(folder / f"a.jsonl{extension}", data[: len(data) - lost] if extension else data)
        whole = read(path, batch_bytes=batch_bytes, max_doc_bytes=250)
        for place in {*whole.positions, *(batch.next_position for batch in whole.batches)}:
            rest = read(path, place, batch_bytes=batch_bytes, max_doc_bytes=250)
            assert rest.documents == [(position, text) for position, text in whole.documents if position >= place]
            assert rest.rejects == [reject for reject in whole.rejects if reject.position >= place]

    def test_hard_texts_in_slices_of_every_size(self, tmp_path: Path) -> None:
        data = jsonl(HARD_TEXTS)
        path = write(tmp_path / "a.jsonl", data)
        for step in (7, 64, 333):
            assert joined(read_ranges(path, range(step, len(data), step))).texts == HARD_TEXTS
