"""What holds for every table, Parquet or Arrow: rows are documents, row numbers are positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import make_texts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tokpress.errors import InputError
from tokpress.records import INVALID_UTF8, MISSING_FIELD, TOO_LARGE
from tokpress.sources.rows import run_starts

from .reading import BATCH_SIZES, BIG_BATCH, TABLE_KINDS, joined, measure, read, read_ranges, same, write_table

LARGE_DICTIONARY = pa.dictionary(pa.uint8(), pa.large_string())
TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.dictionary(pa.int32(), pa.string()),
    LARGE_DICTIONARY,
    pa.dictionary(pa.int64(), pa.binary()),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values (`str`, `bytes` or None) as a column of any type of text."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    if pa.types.is_dictionary(kind):
        return pa.array(raw, pa.binary()).view(_same_width(kind.value_type)).dictionary_encode().cast(kind)
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        bytes_kind = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, pa.binary_view())
        return pa.array(raw, bytes_kind).view(kind)  # without a look at the bytes
    return pa.array(raw, kind)


def _same_width(kind: pa.DataType) -> pa.DataType:
    return pa.binary() if kind == pa.binary() else pa.string()


@pytest.fixture(params=TABLE_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRoundTrip:
    @pytest.mark.parametrize("batch_bytes", BATCH_SIZES)
    @pytest.mark.parametrize("text_type", TEXT_TYPES, ids=str)
    def test_every_text_comes_back(self, tmp_path: Path, kind: str, text_type: pa.DataType, batch_bytes: int) -> None:
        texts = make_texts(60)
        table = pa.table({"id": range(60), "text": column(texts, text_type)})
        result = read(write_table(tmp_path / "a", table, kind, rows=25), batch_bytes=batch_bytes)
        assert result.texts == texts
        assert result.positions == list(range(60))
        assert result.rejects == []

    @settings(deadline=None, max_examples=40)
    @given(
        texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=30),
        text_type=st.sampled_from(TEXT_TYPES),
        kind=st.sampled_from(TABLE_KINDS),
        rows=st.integers(1, 12),
        batch_bytes=st.sampled_from([64, BIG_BATCH]),
    )
    def test_any_text_in_any_type(
        self, folder: Path, texts: list[str], text_type: pa.DataType, kind: str, rows: int, batch_bytes: int
    ) -> None:
        path = write_table(folder / "a", pa.table({"text": column(texts, text_type)}), kind, rows)
        assert read(path, batch_bytes=batch_bytes).texts == texts

    def test_batches_are_cut_by_bytes(self, tmp_path: Path, kind: str) -> None:
        path = write_table(tmp_path / "a", pa.table({"text": ["x" * 100] * 50}), kind)
        result = read(path, batch_bytes=1000)
        assert [len(batch) for batch in result.batches] == [10] * 5
        assert sum(batch.input_bytes for batch in result.batches) <= path.stat().st_size

    @pytest.mark.parametrize("rows", [0, 1])
    def test_an_empty_table(self, tmp_path: Path, kind: str, rows: int) -> None:
        table = pa.table({"text": pa.array([""][:rows], pa.string())})
        assert read(write_table(tmp_path / "a", table, kind)).texts == [""] * rows


class TestTextField:
    @pytest.mark.parametrize(
        ("field", "record"),
        [
            ("body", {"text": "no", "body": "x"}),
            ("a.b", {"a": {"b": "x", "c": "no"}, "b": "no"}),
            ("a.b.c", {"a": {"b": {"c": "x", "d": "no"}}}),
            (r"a\.b", {"a.b": "x", "b": "no"}),
            (r"a\.b", {"a": {"b": "no"}, "a.b": "x"}),
            ("a.b", {"a.b": "no", "a": {"b": "x"}}),
            (r"a.b\.c", {"a": {"b.c": "x"}}),
            ("naïve 😀", {"naïve 😀": "x"}),
        ],
    )
    def test_is_a_dotted_path_into_structs(self, tmp_path: Path, kind: str, field: str, record: dict[str, Any]) -> None:
        path = write_table(tmp_path / "a", pa.Table.from_pylist([record]), kind)
        assert read(path, text_field=field).texts == ["x"]

    def test_is_missing_where_a_struct_around_it_is_null(self, tmp_path: Path, kind: str) -> None:
        rows = [{"a": {"b": {"c": "x"}}}, {"a": None}, {"a": {"b": None}}, {"a": {"b": {"c": None}}}]
        path = write_table(tmp_path / "a", pa.Table.from_pylist(rows), kind)
        result = read(path, text_field="a.b.c")
        assert result.texts == ["x"]
        assert [(reject.position, reject.reason) for reject in result.rejects] == [
            (row, MISSING_FIELD) for row in (1, 2, 3)
        ]

    def test_in_a_dictionary_in_a_struct(self, tmp_path: Path, kind: str) -> None:
        inner = pa.array(["x", None, "x"]).dictionary_encode()
        path = write_table(tmp_path / "a", pa.table({"a": pa.StructArray.from_arrays([inner], ["b"])}), kind)
        assert read(path, text_field="a.b").documents == [(0, "x"), (2, "x")]

    @pytest.mark.parametrize("field", ["text", "a.b", "a.text", "id.x"])
    def test_that_is_not_there_is_an_error_that_lists_the_columns(self, tmp_path: Path, kind: str, field: str) -> None:
        path = write_table(tmp_path / "a", pa.Table.from_pylist([{"id": 1, "a": {"c": "x"}}]), kind)
        with pytest.raises(InputError, match=r"has no column .*Columns: id, a\. .*--text-field"):
            read(path, text_field=field)

    @pytest.mark.parametrize("value", [5, ["x"], {"x": "y"}, True])
    def test_that_holds_no_text_is_an_error(self, tmp_path: Path, kind: str, value: Any) -> None:
        path = write_table(tmp_path / "a", pa.Table.from_pylist([{"text": value}]), kind)
        with pytest.raises(InputError, match=r"holds .*, not text"):
            read(path)


def test_two_columns_of_that_name_are_an_error(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(InputError, match="has more than one column 'text'"):
        read(write_table(tmp_path / "a", table, "arrow-file"))


BAD_VALUES = {None: MISSING_FIELD, b"\xff": INVALID_UTF8, b"\xed\xa0\x80": INVALID_UTF8, b"x" * 101: TOO_LARGE}


class TestBadRows:
    @settings(deadline=None, max_examples=60)
    @given(
        values=st.lists(st.sampled_from([*BAD_VALUES, b"", b"good", "é".encode(), b"x" * 100]), max_size=20),
        text_type=st.sampled_from(TEXT_TYPES),
        kind=st.sampled_from(TABLE_KINDS),
        batch_bytes=st.sampled_from([64, 150, BIG_BATCH]),
    )
    def test_are_rejected_one_by_one(
        self, folder: Path, values: list[bytes | None], text_type: pa.DataType, kind: str, batch_bytes: int
    ) -> None:
        # Arrow itself refuses a whole row group for one bad byte in this: tests/sources/test_parquet.py
        assume((kind, text_type) != ("parquet", LARGE_DICTIONARY))
        path = write_table(folder / "a", pa.table({"text": column(values, text_type)}), kind, rows=7)
        result = read(path, batch_bytes=batch_bytes, max_doc_bytes=100)
        good = [
            (row, value.decode()) for row, value in enumerate(values) if value is not None and value not in BAD_VALUES
        ]
        bad = [(row, None, BAD_VALUES[value]) for row, value in enumerate(values) if value in BAD_VALUES]
        assert result.documents == good
        assert [(reject.position, reject.line, reject.reason) for reject in result.rejects] == bad
        assert result.records == len(values)

    def test_the_limit_is_for_all_texts_of_a_row_together(self, tmp_path: Path, kind: str) -> None:
        table = pa.table({"q": ["12345", "12345", "1234567890"], "a": ["67890", "678901", ""]})
        path = write_table(tmp_path / "a", table, kind)
        result = read(path, text_field="q", required=("a",), max_doc_bytes=10)
        assert result.positions == [0, 2]
        [reject] = result.rejects
        assert (reject.reason, reject.position) == (TOO_LARGE, 1)
        assert "the text has 11 bytes, the limit is 10" in reject.detail

    def test_say_what_is_wrong(self, tmp_path: Path, kind: str) -> None:
        values = [None, b"caf\xe9", b"x" * 2000]
        path = write_table(tmp_path / "a", pa.table({"text": pa.array(values, pa.binary())}), kind)
        missing, encoding, size = (reject.detail for reject in read(path, max_doc_bytes=1000).rejects)
        assert "'text' is null" in missing
        assert "byte 3 of the text is 0xe9" in encoding
        assert "2,000 bytes, the limit is 1,000" in size
        assert "--max-doc-bytes" in size

    def test_a_column_of_nothing_but_nulls(self, tmp_path: Path, kind: str) -> None:
        path = write_table(tmp_path / "a", pa.table({"text": pa.nulls(3)}), kind)
        assert read(path).reasons == [MISSING_FIELD] * 3

    def test_a_null_inside_a_dictionary(self, tmp_path: Path) -> None:
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["x", None]))
        result = read(write_table(tmp_path / "a", pa.table({"text": values}), "arrow-file"))
        assert result.documents == [(0, "x"), (3, "x")]
        assert result.reasons == [MISSING_FIELD] * 2


VALUES = [*make_texts(40), None, b"\xff", *make_texts(20, seed=1)]


class TestPlaces:
    @settings(deadline=None, max_examples=40)
    @given(
        kind=st.sampled_from(TABLE_KINDS),
        rows=st.sampled_from([1, 7, 100]),
        cuts=st.lists(st.integers(0, 70), max_size=5),
        batch_bytes=st.sampled_from([64, 500, BIG_BATCH]),
    )
    def test_any_ranges_give_every_row_once_and_in_order(
        self, folder: Path, kind: str, rows: int, cuts: list[int], batch_bytes: int
    ) -> None:
        path = write_table(folder / "a", pa.table({"text": column(VALUES, pa.string())}), kind, rows)
        parts = read_ranges(path, cuts, batch_bytes)
        assert same(joined(parts), read(path))
        assert joined(parts).records == len(VALUES)

    @pytest.mark.parametrize("rows", [7, 100])
    def test_reading_goes_on_from_any_batch_and_any_row(self, folder: Path, kind: str, rows: int) -> None:
        path = write_table(folder / "a", pa.table({"text": column(VALUES, pa.string())}), kind, rows)
        whole = read(path, batch_bytes=500)
        for place in {*whole.positions, *(batch.next_position for batch in whole.batches)}:
            rest = read(path, place, batch_bytes=500)
            assert rest.documents == [(row, text) for row, text in whole.documents if row >= place]
            assert rest.rejects == [reject for reject in whole.rejects if reject.position >= place]


@pytest.mark.parametrize("kind", ["parquet", "arrow-file"])
def test_a_long_text_that_many_rows_share_is_not_spelled_out(tmp_path: Path, kind: str) -> None:
    """Half a gigabyte of text in a small file: memory follows the batch, not the rows."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 500_000]))
    if kind == "parquet":
        text = text.cast(pa.string())  # so that nothing in the file says that it is a dictionary
    small = write_table(tmp_path / "small", pa.table({"text": ["a"]}), kind)
    path = write_table(tmp_path / "a", pa.table({"text": text}), kind)
    assert path.stat().st_size < 1_000_000
    result = measure(path, small)
    assert result["documents"] == 1000
    assert result["growth"] < 300_000_000


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [([], [0]), ([5] * 4, [0, 20]), ([4, 5, 1, 9], [0, 30]), ([10, 10], [0, 10]), ([30, 1], [0, 10])],
)
def test_a_run_ends_with_the_piece_that_fills_a_unit(sizes: list[int], starts: list[int]) -> None:
    assert run_starts([(10, size) for size in sizes], 10) == starts
