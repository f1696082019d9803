"""Fields kept beside a document: whatever they hold becomes text, and none of them can make a record bad."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.config import ReadConfig
from tokpress.errors import InputError, UsageError
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover
from tokpress.sources.kept import column_as_json, value_as_text


def kept(path: Path, *fields: str, batch_bytes: int = 2000, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The kept fields of every good record, and the reasons of the rejects."""
    config = ReadConfig(keep=fields, **options)
    (source,) = discover([path], config)
    rows: list[dict[str, Any]] = []
    reasons: list[str] = []
    for batch in open_reader(source, 0, config, batch_bytes).read():
        assert batch.kept is None or len(batch.kept) == len(batch)
        rows += batch.kept.to_pylist() if batch.kept is not None else []
        reasons += [reject.reason for reject in batch.rejects]
    return rows, reasons


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


class TestJson:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ('"a string"', "a string"),
            ('"with \\"escapes\\" \\u00e9\\n"', 'with "escapes" é\n'),
            ("null", None),
            ("17", "17"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("1.50", "1.50"),
            ("true", "true"),
            ('{"b": [1, 2]}', '{"b": [1, 2]}'),
            ('""', ""),
            ('"half \\ud83d"', "half \\ud83d"),
        ],
    )
    def test_any_value_is_text(self, jsonl: Path, value: str, text: str | None) -> None:
        jsonl.write_text(f'{{"text": "t", "id": {value}}}')
        assert kept(jsonl, "id") == ([{"id": text}], [])

    def test_a_field_that_is_not_there_is_null(self, jsonl: Path) -> None:
        jsonl.write_text('{"text": "t"}\n{"text": "u", "id": "7"}')
        assert kept(jsonl, "id")[0] == [{"id": None}, {"id": "7"}]

    def test_nested_ones_are_found(self, jsonl: Path) -> None:
        jsonl.write_text('{"text": "t", "meta": {"url": "u", "a.b": 1}}\n{"text": "t", "meta": "none"}\n{"text": "t"}')
        names = {"meta.url": "u", "meta.a\\.b": "1"}
        nothing = dict.fromkeys(names)
        assert kept(jsonl, *names)[0] == [names, nothing, nothing]

    def test_also_beside_a_nested_text(self, jsonl: Path) -> None:
        jsonl.write_text('{"doc": {"text": "t", "id": 5, "meta": {"x": "y"}}, "url": "u"}')
        found, _ = kept(jsonl, "doc.id", "url", "doc.meta.x", "doc.meta", text_field="doc.text")
        assert found == [{"doc.id": "5", "url": "u", "doc.meta.x": "y", "doc.meta": '{"x": "y"}'}]

    def test_stay_with_their_document_among_bad_records(self, jsonl: Path) -> None:
        lines = [f'{{"id": {i}, "text": "t{i}"}}' if i % 3 else "not json" for i in range(1000)]
        lines[10] = '{"id": 10, "text": null}'
        lines[20] = '{"id": 20, "text": "t", "score": NaN}'
        jsonl.write_text("\n".join(lines))
        rows, reasons = kept(jsonl, "id")
        assert [row["id"] for row in rows] == [str(i) for i in range(1000) if i % 3 and i != 10]
        assert len(reasons) == 1000 - len(rows)

    def test_are_the_same_in_records_that_only_pythons_json_takes(self, jsonl: Path) -> None:
        rest = '"text": "t", "id": 5, "meta": {"url": "u", "a.b": {"c": "\u00e9"}}}\n'
        jsonl.write_text("{" + rest + '{"score": NaN, ' + rest)
        rows, reasons = kept(jsonl, "id", "meta.url", "meta.a\\.b.c", "meta.none")
        assert rows == [{"id": "5", "meta.url": "u", "meta.a\\.b.c": "\u00e9", "meta.none": None}] * 2
        assert reasons == []

    def test_bytes_that_are_no_text_do_not_make_a_record_bad(self, jsonl: Path) -> None:
        jsonl.write_bytes(b'{"text": "t", "id": "\xff\xfe"}')
        assert kept(jsonl, "id") == ([{"id": '"\\xff\\xfe"'}], [])

    @pytest.mark.parametrize("field", ["doc", "doc.text", "doc.text.more"])
    def test_the_text_itself_cannot_be_kept(self, jsonl: Path, field: str) -> None:
        jsonl.write_text("{}")
        with pytest.raises(UsageError, match="--keep 'doc"):
            kept(jsonl, field, text_field="doc.text")

    def test_plain_text_has_no_fields(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        with pytest.raises(UsageError, match="--keep is for records with fields"):
            kept(tmp_path / "a.txt", "id")

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
        max_leaves=6,
    )

    @given(values=st.lists(json_values, max_size=20), batch_bytes=st.integers(1, 500))
    def test_can_be_read_back(
        self, tmp_path_factory: pytest.TempPathFactory, values: list[Any], batch_bytes: int
    ) -> None:
        path = tmp_path_factory.mktemp("kept") / "a.jsonl"
        path.write_text("\n".join(json.dumps({"v": value, "text": "t"}) for value in values))
        rows, _ = kept(path, "v", batch_bytes=batch_bytes)
        assert len(rows) == len(values)
        for row, value in zip(rows, values, strict=True):
            assert row["v"] == value if value is None or isinstance(value, str) else json.loads(row["v"]) == value


class TestTables:
    COLUMNS: ClassVar[dict[str, tuple[Any, list[str | None]]]] = {
        "string": (pa.array(["a", None, "c"]), ["a", None, "c"]),
        "large": (pa.array(["a", "b", None], pa.large_string()), ["a", "b", None]),
        "int": (pa.array([1, None, -3]), ["1", None, "-3"]),
        "bool": (pa.array([True, False, None]), ["true", "false", None]),
        "binary": (pa.array([b"ok", b"\xff", None]), ["ok", "\\xff", None]),
        "time": (pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * 3), ["2026-01-02 00:00:00.000000Z"] * 3),
        "list": (pa.array([["x"], [], None]), ['["x"]', "[]", None]),
        "struct": (pa.array([{"k": 1}, None, {"k": None}]), ['{"k": 1}', None, '{"k": null}']),
        "dictionary": (pa.array(["r", "g", "r"]).dictionary_encode(), ["r", "g", "r"]),
    }

    def write(self, path: Path) -> Path:
        table = pa.table({name: column for name, (column, _) in self.COLUMNS.items()} | {"text": ["x", "y", "z"]})
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        return path

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_any_column_is_text(self, tmp_path: Path, kind: str) -> None:
        rows, reasons = kept(self.write(tmp_path / f"a.{kind}"), *self.COLUMNS)
        assert rows == [{name: texts[i] for name, (_, texts) in self.COLUMNS.items()} for i in range(3)]
        assert reasons == []

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_fields_of_structs(self, tmp_path: Path, kind: str) -> None:
        assert kept(self.write(tmp_path / f"a.{kind}"), "struct.k")[0] == [
            {"struct.k": value} for value in ("1", None, None)
        ]

    def test_stay_with_their_row_where_others_are_bad(self, tmp_path: Path) -> None:
        text = [None if i % 5 == 0 else f"t{i}" for i in range(1000)]
        pq.write_table(pa.table({"text": text, "id": range(1000)}), tmp_path / "a.parquet", row_group_size=90)
        rows, reasons = kept(tmp_path / "a.parquet", "id")
        assert [row["id"] for row in rows] == [str(i) for i in range(1000) if i % 5]
        assert len(reasons) == 200

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_a_column_that_is_not_there_is_named(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(InputError, match=r"no column 'url'.*Choose one with --keep"):
            kept(self.write(tmp_path / f"a.{kind}"), "url")


def test_a_python_value_is_always_printable() -> None:
    assert value_as_text("half \ud83d").encode() == b"half \\ud83d"  # type: ignore[union-attr]


def test_nulls_that_only_a_table_needs_are_left_out_at_any_depth() -> None:
    """A table gives every object the fields of all of them."""
    values = [[{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}], None, [{"a": None}], [None]]
    found = column_as_json(pa.array(values)).to_pylist()
    assert found == [b'[{"a":1},{"b":[{"c":2},{"d":3}]}]', None, b"[{}]", b"[null]"]
