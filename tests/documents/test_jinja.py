"""--template: any record, and loss where its blocks are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import stored

import tokpress
from tokpress.errors import UsageError
from tokpress.records import BAD_JSON, BAD_TEMPLATE

from .shaping import masked, shape

TEMPLATE = "{{ grid | join('') }}={% loss %}{{ answer }}{% endloss %}\n"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    return tmp_path / "t.jinja"


def test_blocks_are_learned_and_what_follows_is_not(template: Path) -> None:
    docs, rejects = shape("bytes", template=template)([{"grid": ["é", "b"], "answer": "xyz"}])
    assert rejects == []
    # Jinja2 leaves out the newline at the very end.
    assert masked(docs, 0) == ([*"éb=xyz".encode(), 256], [0, 0, 0, 0, 1, 1, 1, 1])


def test_several_blocks_and_text_after_the_last(template: Path) -> None:
    template.write_text("{% for t in turns %}{{ t.q }}{% loss %}{{ t.a }}{% endloss %}{% endfor %}.")
    docs, _ = shape("bytes", template=template)(
        [{"turns": [{"q": "1", "a": "é"}, {"q": "2", "a": ""}, {"q": "3", "a": "b"}]}]
    )
    assert masked(docs, 0) == ([*"1é23b.".encode(), 256], [0, 1, 1, 0, 0, 1, 0, 0])


def test_names_that_are_no_identifiers(template: Path) -> None:
    template.write_text("{{ record['a b'] }}{% loss %}{{ record.record }}{% endloss %}")
    docs, _ = shape("bytes", template=template)([{"a b": "1", "record": "2"}])
    assert masked(docs, 0)[0] == [*b"12", 256]


def test_a_template_without_a_block_is_an_error(template: Path) -> None:
    template.write_text("{{ text }}")
    with pytest.raises(UsageError, match=r"\{% loss %\}"):
        shape("bytes", template=template)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--template .* cannot be read"):
        shape("bytes", template=tmp_path / "nowhere")


class TestBuild:
    def build(self, tmp_path: Path, source: Path, template: Path, **options: Any) -> tokpress.Store:
        options = {"tokenizer": "bytes", "max_rejects": "100%"} | options
        return tokpress.build(source, out=tmp_path / "store", template=template, **options)

    def test_bad_lines_are_rejects(self, tmp_path: Path, template: Path) -> None:
        lines = [
            '{"grid": ["a"], "answer": 1}',
            "nonsense",
            '{"grid": 5, "answer": 2}',
            '{"answer": "NaN", "grid": [NaN]}',
            "[]",
        ]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        store = self.build(tmp_path, tmp_path / "a.jsonl", template, keep=["answer"])
        assert [store.text(i) for i in range(len(store))] == ["a=1"]
        assert store.kept(0) == {"answer": "1"}
        assert store.manifest.rejects == {BAD_JSON: 2, BAD_TEMPLATE: 2}

    def test_a_row_of_a_table_is_a_record(self, tmp_path: Path, template: Path) -> None:
        rows = [{"grid": ["a", "b"], "answer": {"is": i}} for i in range(20)]
        template.write_text("{{ grid | join('') }}{% loss %}{{ answer.is }}{% endloss %}")
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=7)
        store = self.build(tmp_path, tmp_path / "a.parquet", template)
        assert [store.text(i) for i in range(20)] == [f"ab{i}" for i in range(20)]
        with pa.ipc.new_stream(tmp_path / "b.arrow", pa.Table.from_pylist(rows).schema) as stream:
            stream.write_table(pa.Table.from_pylist(rows))
        again = self.build(tmp_path, tmp_path / "b.arrow", template, overwrite=True)
        assert [again.text(i) for i in range(20)] == [store.text(i) for i in range(20)]

    def test_another_template_is_another_store(self, tmp_path: Path, template: Path) -> None:
        (tmp_path / "a.jsonl").write_text(json.dumps({"grid": ["a"], "answer": 1}))
        self.build(tmp_path, tmp_path / "a.jsonl", template)
        template.write_text(TEMPLATE + ".")
        with pytest.raises(UsageError, match=r"options\.template\.template: was"):
            self.build(tmp_path, tmp_path / "a.jsonl", template)

    def test_text_that_outgrows_its_batch_is_written_in_parts_and_nothing_is_lost(self, tmp_path: Path) -> None:
        template = tmp_path / "t.jinja"
        template.write_text("{{ text * 40 }}{% loss %}{{ text }}{% endloss %}")
        lines = [json.dumps({"text": str(i)}) if i % 3 else "bad line" for i in range(400)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        options: Any = {"shard_size": 3000, "val_fraction": 0.3, "overwrite": True}
        stores = []
        for batch_bytes in (10**6, 500, 100):
            store = self.build(tmp_path, tmp_path / "a.jsonl", template, batch_bytes=batch_bytes, **options)
            assert store.verify().problems == []
            assert (store.manifest.totals.read, store.manifest.totals.rejected) == (400, 134)
            stores.append(stored(store.path))
        assert stores[0] == stores[1] == stores[2]
