"""Plain text: a document a file, a line, or whatever stands between separators, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard
from conftest import HARD_TEXTS, make_texts
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokpress.records import DAMAGED_INPUT, INVALID_UTF8, TOO_LARGE

from .reading import (
    BATCH_SIZES,
    BIG_BATCH,
    BOM,
    COMPRESSORS,
    PACKED,
    compress,
    joined,
    measure,
    read,
    read_ranges,
    same,
    write,
)

NOT_UTF8 = [b"\xff", b"caf\xe9", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"ok \x80 ok"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


unicode = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


class TestFiles:
    """`text`: a file is a document."""

    @pytest.mark.parametrize("extension", COMPRESSORS)
    @settings(deadline=None, max_examples=25)
    @given(text=unicode | st.sampled_from(HARD_TEXTS), mark=st.booleans(), batch_bytes=st.sampled_from(BATCH_SIZES))
    @example(text="\ufeffsecond mark", mark=True, batch_bytes=64)
    def test_comes_back_whole(self, folder: Path, extension: str, text: str, mark: bool, batch_bytes: int) -> None:
        if not mark:
            text = text.lstrip("\ufeff")
        data = (BOM if mark else b"") + text.encode()
        path = write(folder / f"a.txt{extension}", compress(data, extension, members=2))
        result = read(path, batch_bytes=batch_bytes)
        assert result.documents == [(0, text)]
        assert result.rejects == []
        assert read(path, start=result.batches[-1].next_position).records == 0

    @pytest.mark.parametrize("data", NOT_UTF8)
    def test_that_is_not_utf8_is_rejected(self, tmp_path: Path, data: bytes) -> None:
        result = read(write(tmp_path / "a.txt", data))
        [reject] = result.rejects
        assert (result.texts, reject.reason, reject.position, reject.line) == ([], INVALID_UTF8, 0, None)
        assert reject.preview == data.decode("utf-8", "backslashreplace")

    @pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
    def test_in_utf16_says_how_to_convert_it(self, tmp_path: Path, encoding: str) -> None:
        [reject] = read(write(tmp_path / "a.txt", "\ufeffhello".encode(encoding))).rejects
        assert reject.reason == INVALID_UTF8
        assert "iconv" in reject.detail

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("mark", [b"", BOM])
    def test_over_the_limit_is_rejected(self, tmp_path: Path, batch_bytes: int, mark: bytes) -> None:
        path = write(tmp_path / "a.txt", mark + b"0123456789" * 30)
        assert read(path, batch_bytes=batch_bytes, max_doc_bytes=300).texts == ["0123456789" * 30]
        result = read(path, batch_bytes=batch_bytes, max_doc_bytes=299)
        [reject] = result.rejects
        assert (reject.reason, reject.position) == (TOO_LARGE, 0)
        assert reject.preview.removeprefix("\ufeff").startswith("0123456789")
        assert read(path, start=result.batches[-1].next_position).records == 0

    @pytest.mark.parametrize("extension", PACKED)
    @pytest.mark.parametrize("length", [0, 5000])
    def test_that_is_truncated_is_one_reject(self, tmp_path: Path, extension: str, length: int) -> None:
        path = write(tmp_path / f"a.txt{extension}", compress(b"x" * length, extension)[:-2])
        result = read(path)
        assert (result.texts, result.reasons) == ([], [DAMAGED_INPUT])
        assert read(path, start=result.batches[-1].next_position).records == 0


class TestLines:
    """`lines`: a line is a document, an empty one too."""

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("extension", COMPRESSORS)
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_come_back(self, tmp_path: Path, extension: str, batch_bytes: int, end: str) -> None:
        lines = [line for text in make_texts(60) for line in text.replace("\r", "").split("\n")]
        data = BOM + "".join(line + end for line in lines).encode()
        path = write(tmp_path / f"a.txt{extension}", compress(data, extension, members=3))
        assert read(path, batch_bytes=batch_bytes, format="lines").texts == lines

    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", []),
            (BOM, []),
            (b"\n", [""]),
            (BOM + b"\n", [""]),
            (b"a", ["a"]),
            (b"a\n", ["a"]),
            (b"a\n\nb", ["a", "", "b"]),
            (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
            (b"a\rb\n", ["a\rb"]),
            (b"a\r\r\n", ["a\r"]),
            (b"a\r", ["a\r"]),
            ("a\u2028b\x0bc\x85\n".encode(), ["a\u2028b\x0bc\x85"]),
            (b"\n" + BOM + b"a", ["", "\ufeffa"]),
        ],
    )
    def test_end_with_a_newline_and_nothing_else(self, tmp_path: Path, data: bytes, lines: list[str]) -> None:
        assert read(write(tmp_path / "a.txt", data), format="lines").texts == lines

    @settings(deadline=None, max_examples=80)
    @given(
        lines=st.lists(st.sampled_from([b"", b"good", "gütes".encode(), b"x" * 70, *NOT_UTF8]), max_size=15),
        mark=st.sampled_from([b"", BOM]),
        cuts=st.lists(st.integers(0, 300), max_size=4),
        batch_bytes=st.sampled_from([64, 100, BIG_BATCH]),
    )
    def test_good_and_bad_are_told_apart_in_any_ranges(
        self, folder: Path, lines: list[bytes], mark: bytes, cuts: list[int], batch_bytes: int
    ) -> None:
        path = write(folder / "a.txt", mark + b"".join(line + b"\n" for line in lines))
        options: dict[str, Any] = {"format": "lines", "max_doc_bytes": 69}
        result = joined(read_ranges(path, cuts, batch_bytes, **options))
        assert same(result, read(path, **options))
        fates = [TOO_LARGE if len(line) > 69 else INVALID_UTF8 if line in NOT_UTF8 else None for line in lines]
        assert result.texts == [line.decode() for line, fate in zip(lines, fates, strict=True) if fate is None]
        bad = [(i, fate) for i, fate in enumerate(fates, start=1) if fate]
        assert [(reject.line, reject.reason) for reject in result.rejects] == bad
        for reject in result.rejects:
            before = (mark + b"".join(line + b"\n" for line in lines))[: reject.position]
            assert before.count(b"\n") == (reject.line or 0) - 1
        assert result.records == len(lines)


SEPARATORS = ["\n\n", "<|endoftext|>", "\0", "aa", "aba", "§§", "\r\n\r\n", "\ufeff", "x"]


class TestSeparator:
    """`--separator`: documents are what stands between."""

    @settings(deadline=None, max_examples=250)
    @given(data=st.data(), separator=st.sampled_from(SEPARATORS), batch_bytes=st.sampled_from([64, 65, BIG_BATCH]))
    def test_texts_are_what_python_splits(
        self, folder: Path, data: st.DataObject, separator: str, batch_bytes: int
    ) -> None:
        letters = st.sampled_from([separator, *separator, "a", "b", "\n", "é", " " * 60])
        text = "".join(data.draw(st.lists(letters, max_size=60)))
        mark = BOM if text.startswith("\ufeff") else data.draw(st.sampled_from([b"", BOM]))
        path = write(folder / "a.txt", mark + text.encode())
        result = read(path, batch_bytes=batch_bytes, separator=separator)
        expected = text.split(separator)
        assert result.texts == (expected if expected[-1] else expected[:-1])
        assert result.rejects == []

    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("extension", COMPRESSORS)
    def test_hard_texts_come_back(self, tmp_path: Path, extension: str, batch_bytes: int) -> None:
        separator = "<|endoftext|>"
        texts = [text for text in make_texts(60) if separator not in text]
        data = separator.join([*texts, ""]).encode()
        path = write(tmp_path / f"a.txt{extension}", compress(data, extension, members=3))
        assert read(path, batch_bytes=batch_bytes, separator=separator).texts == texts

    @settings(deadline=None, max_examples=100)
    @given(
        sizes=st.lists(st.integers(0, 400), max_size=8),
        separator=st.sampled_from(["--", "-=-", "\n"]),
        last=st.booleans(),
        max_bytes=st.sampled_from([62, 63, 64, 127, 300]),
    )
    @example(sizes=[63], separator="--", last=True, max_bytes=63)
    @example(sizes=[62, 62], separator="-=-", last=True, max_bytes=62)
    def test_documents_over_the_limit_are_rejected_and_the_others_kept(
        self, folder: Path, sizes: list[int], separator: str, last: bool, max_bytes: int
    ) -> None:
        documents = ["".join(chr(97 + i % 26) for i in range(size)) for size in sizes]
        data = separator.join([*documents, ""] if last else documents)
        path = write(folder / "a.txt", data.encode())
        small, big = (
            read(path, batch_bytes=batch_bytes, separator=separator, max_doc_bytes=max_bytes)
            for batch_bytes in (64, BIG_BATCH)
        )
        assert same(small, big)
        if not last and documents and not documents[-1]:
            documents.pop()
        assert big.texts == [document for document in documents if len(document) <= max_bytes]
        long = [document for document in documents if len(document) > max_bytes]
        for reject, document in zip(big.rejects, long, strict=True):
            assert reject.reason == TOO_LARGE
            assert data[reject.position :].startswith(document)
            assert (document + separator).startswith(reject.preview)

    @settings(deadline=None, max_examples=40)
    @given(
        documents=st.lists(st.sampled_from([b"", b"a", b"\xff", b"x" * 100, "é☃".encode()]), max_size=10),
        extension=st.sampled_from(list(COMPRESSORS)),
        mark=st.sampled_from([b"", BOM]),
        lost=st.sampled_from([0, 1, 12]),
    )
    def test_reading_goes_on_from_any_batch_and_any_document(
        self, folder: Path, documents: list[bytes], extension: str, mark: bytes, lost: int
    ) -> None:
        data = compress(mark + b"--".join(documents), extension)
        path = write(folder / f"a.txt{extension}", data[: len(data) - lost] if extension else data)
        options: dict[str, Any] = {"separator": "--", "max_doc_bytes": 99, "batch_bytes": 64}
        whole = read(path, **options)
        for place in {*whole.positions, *(batch.next_position for batch in whole.batches)}:
            rest = read(path, place, **options)
            assert rest.documents == [(position, text) for position, text in whole.documents if position >= place]
            assert rest.rejects == [reject for reject in whole.rejects if reject.position >= place]

    @pytest.mark.parametrize("data", NOT_UTF8)
    def test_a_document_that_is_not_utf8_is_rejected_alone(self, tmp_path: Path, data: bytes) -> None:
        result = read(write(tmp_path / "a.txt", b"before|" + data + b"|after"), separator="|")
        assert result.texts == ["before", "after"]
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.line) == (INVALID_UTF8, 7, None)

    @pytest.mark.parametrize("extension", PACKED)
    def test_a_truncated_file_keeps_its_whole_documents(self, tmp_path: Path, extension: str) -> None:
        plain = b"".join(b"document %d|" % i for i in range(2000))
        packed = compress(plain[: len(plain) // 2], extension) + compress(plain[len(plain) // 2 :], extension)[:-9]
        result = read(write(tmp_path / f"a.txt{extension}", packed), separator="|")
        assert len(result.texts) >= 999
        assert result.texts == [f"document {i}" for i in range(len(result.texts))]
        [reject] = result.rejects
        assert (reject.reason, reject.line) == (DAMAGED_INPUT, None)
        assert plain[: reject.position].count(b"|") == len(result.texts)


@pytest.mark.parametrize(
    "options", [{}, {"format": "lines"}, {"separator": "<|end|>"}], ids=["a file", "a line", "between separators"]
)
def test_a_bomb_is_never_loaded(tmp_path: Path, options: dict[str, str]) -> None:
    """Half a gigabyte without an end, in a few kilobytes."""
    frame = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(frame.compress(b"x" * 16_000_000) for _ in range(32)) + frame.flush()
    small = write(tmp_path / "small.txt.zst", compress(b"a", ".zst"))
    result = measure(write(tmp_path / "bomb.txt.zst", packed), small, max_doc_bytes=16_000_000, **options)
    assert (result["documents"], result["reasons"]) == (0, [TOO_LARGE])
    assert result["growth"] < 250_000_000
