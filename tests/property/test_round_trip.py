"""Every document of every format comes back from the store, byte for byte, and every bad record from `rejects/`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import HARD_TEXTS, make_texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources.reading import BOM, COMPRESSORS, TABLE_KINDS, compress, jsonl, write, write_table

import tokpress
from tokpress.errors import NothingWritten

SEPARATOR = "<|end|>"

characters = st.characters(exclude_categories=["Cs"])
texts_of_anything = st.lists(st.text(characters, max_size=80) | st.sampled_from(HARD_TEXTS), max_size=12)
texts_of_lines = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=80))
quick = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trip")


def stored(source: Path | list[Path], folder: Path, **options: Any) -> list[str]:
    """Builds a store and reads all of it back; of no record there is none."""
    try:
        store = tokpress.build(source, tokenizer="bytes", out=folder / "store", overwrite=True, **options)
    except NothingWritten:
        return []
    assert store.verify().ok
    assert [store.text(i) for i in range(len(store))] == [store.decode(ids[:-1]) for ids in store]
    assert store.manifest.totals.read == store.manifest.totals.written + store.manifest.totals.rejected
    return [store.text(i) for i in range(len(store))]


sizes: dict[str, list[int | str]] = {"batch_bytes": [64, 1000, "4MiB"], "unit_size": [50, 500, "1GB"]}
cuts = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in sizes.items()})


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("extension", COMPRESSORS)
class TestStreams:
    @quick
    @given(
        texts=texts_of_anything,
        mark=st.sampled_from([b"", BOM]),
        end=st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \t\r\n \n"]),
        last=st.booleans(),
        cuts=cuts,
    )
    def test_jsonl(
        self,
        folder: Path,
        extension: str,
        members: int,
        texts: list[str],
        mark: bytes,
        end: bytes,
        last: bool,
        cuts: dict[str, Any],
    ) -> None:
        data = mark + jsonl(texts).replace(b"\n", end)
        data = data if last else data.removesuffix(end)
        path = write(folder / f"a.jsonl{extension}", compress(data, extension, members))
        assert stored(path, folder, **cuts) == texts

    @quick
    @given(texts=texts_of_anything, mark=st.sampled_from([b"", BOM]), cuts=cuts)
    def test_csv(
        self, folder: Path, extension: str, members: int, texts: list[str], mark: bytes, cuts: dict[str, Any]
    ) -> None:
        file = io.StringIO()
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["text"], *([text] for text in texts)])
        path = write(folder / f"a.csv{extension}", compress(mark + file.getvalue().encode(), extension, members))
        assert stored(path, folder, **cuts) == texts

    @quick
    @given(lines=texts_of_lines, mark=st.sampled_from([b"", BOM]), end=st.sampled_from(["\n", "\r\n"]), cuts=cuts)
    def test_lines(
        self,
        folder: Path,
        extension: str,
        members: int,
        lines: list[str],
        mark: bytes,
        end: str,
        cuts: dict[str, Any],
    ) -> None:
        if lines and not mark:
            lines[0] = lines[0].lstrip("\ufeff")
        data = mark + "".join(line + end for line in lines).encode()
        path = write(folder / f"a.txt{extension}", compress(data, extension, members))
        assert stored(path, folder, format="lines", **cuts) == lines

    @quick
    @given(text=st.text(characters) | st.sampled_from(HARD_TEXTS), mark=st.sampled_from([b"", BOM]), cuts=cuts)
    def test_text(
        self, folder: Path, extension: str, members: int, text: str, mark: bytes, cuts: dict[str, Any]
    ) -> None:
        text = text if mark else text.lstrip("\ufeff")
        path = write(folder / f"a.txt{extension}", compress(mark + text.encode(), extension, members))
        assert stored(path, folder, **cuts) == [text]

    @quick
    @given(texts=texts_of_anything, mark=st.sampled_from([b"", BOM]), cuts=cuts)
    def test_separated(
        self, folder: Path, extension: str, members: int, texts: list[str], mark: bytes, cuts: dict[str, Any]
    ) -> None:
        if texts and not mark:
            texts[0] = texts[0].lstrip("\ufeff")
        data = mark + "".join(text + SEPARATOR for text in texts).encode()
        path = write(folder / f"a.txt{extension}", compress(data, extension, members))
        assert stored(path, folder, separator=SEPARATOR, **cuts) == texts


@pytest.mark.parametrize("kind", TABLE_KINDS)
class TestTables:
    @quick
    @given(
        texts=texts_of_anything,
        text_type=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.binary()]),
        rows=st.integers(1, 8),
        cuts=cuts,
    )
    def test_a_column(
        self, folder: Path, kind: str, texts: list[str], text_type: pa.DataType, rows: int, cuts: dict[str, Any]
    ) -> None:
        path = write_table(folder / "a", pa.table({"text": pa.array(texts, text_type)}), kind, rows)
        assert stored(path, folder, **cuts) == texts

    @quick
    @given(texts=texts_of_anything, rows=st.integers(1, 8), cuts=cuts)
    def test_a_field_of_a_struct(
        self, folder: Path, kind: str, texts: list[str], rows: int, cuts: dict[str, Any]
    ) -> None:
        column = pa.StructArray.from_arrays([pa.array(texts, pa.string()).dictionary_encode()], ["the.text"])
        path = write_table(folder / "a", pa.table({"record": column}), kind, rows)
        assert stored(path, folder, text_field=r"record.the\.text", **cuts) == texts


def test_all_formats_at_once(tmp_path: Path) -> None:
    texts = make_texts(60)
    inputs = [
        write(tmp_path / f"a.jsonl{extension}", compress(jsonl(texts), extension, 2)) for extension in COMPRESSORS
    ]
    inputs += [write_table(tmp_path / kind, pa.table({"text": texts}), kind, 7) for kind in TABLE_KINDS]
    assert stored(inputs, tmp_path, unit_size=5000, shard_size=2000) == texts * len(inputs)


def test_bad_records_stand_in_rejects_and_good_ones_in_the_store(tmp_path: Path) -> None:
    good = make_texts(200)
    lines = jsonl(good).splitlines(keepends=True)
    for place in (150, 77, 3):
        lines.insert(place, b"bad\n")
    plain = b"".join(lines)
    inputs = [write(tmp_path / "a.jsonl", plain), write(tmp_path / "b.jsonl.gz", compress(plain, ".gz")[:-3])]
    inputs.append(write(tmp_path / "c.parquet", b"PAR1 and no more"))
    assert stored(inputs, tmp_path, unit_size=3000, max_rejects="100") == good * 2
    files = sorted((tmp_path / "store" / "rejects").iterdir())
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    bad: list[tuple[int | None, int, str]] = [
        (number, sum(map(len, lines[: number - 1])), "bad-json") for number in (4, 79, 153)
    ]
    expected = [("a.jsonl", *place) for place in bad] + [("b.jsonl.gz", *place) for place in bad]
    expected += [("b.jsonl.gz", 204, len(plain), "damaged-input"), ("c.parquet", None, 0, "damaged-input")]
    found = [(Path(at["source"]).name, at.get("line"), at["position"], at["reason"]) for at in told]
    assert found == expected
