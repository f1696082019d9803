"""Kept columns on disk: the same bytes however they were batched, and each document's row found again."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.storage.local import LocalStorage
from tokpress.store import kept as module
from tokpress.store.kept import KeptWriter, read_kept
from tokpress.store.verify import verify_store

from .tampering import forge

rows = st.lists(
    st.tuples(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.none()), max_size=60
)


def write(path: Path, values: list[tuple[str | None, None]], cuts: list[int]) -> bytes:
    file = LocalStorage(path.parent).create(path.name)
    writer = KeptWriter(file, ["id", "nothing"])
    schema = pa.schema([("id", pa.large_string()), ("nothing", pa.large_string())])
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for first, last in pairwise(bounds):
        columns = list(zip(*values[first:last], strict=True)) or [(), ()]
        writer.append(pa.record_batch([pa.array(c, pa.large_string()) for c in columns], schema=schema))
    writer.finish()
    file.commit()
    return path.read_bytes()


class TestWriter:
    @given(values=rows, cuts=st.lists(st.integers(0, 60)), group_bytes=st.integers(1, 3000))
    def test_bytes_do_not_depend_on_batches(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        values: list[tuple[str | None, None]],
        cuts: list[int],
        group_bytes: int,
    ) -> None:
        path = tmp_path_factory.mktemp("kept") / "a.docs.parquet"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_GROUP_BYTES", group_bytes)
            whole = write(path, values, [])
            assert write(path, values, cuts) == whole
        assert pq.read_table(path).column("id").to_pylist() == [value for value, _ in values]
        for i, (value, _) in enumerate(values):
            assert read_kept(LocalStorage(path.parent), path.name, i) == {"id": value, "nothing": None}

    def test_a_row_group_is_cut_by_bytes(self, tmp_path: Path) -> None:
        write(tmp_path / "a", [("x" * 1000, None)] * 20_000, [])
        metadata = pq.read_metadata(tmp_path / "a")
        assert metadata.num_row_groups == 6
        assert metadata.row_group(0).num_rows == metadata.row_group(4).num_rows


class TestStore:
    @pytest.fixture
    def store(self, tmp_path: Path) -> tokpress.Store:
        lines = [json.dumps({"text": f"text {i}", "id": i, "url": f"u{i}"}) for i in range(200)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        options: Any = {"unit_size": 1000, "shard_size": 100}
        return tokpress.build(
            tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", keep=["id", "url"], **options
        )

    def test_each_document_has_its_row(self, store: tokpress.Store) -> None:
        assert [store.kept(i) for i in range(200)] == [{"id": str(i), "url": f"u{i}"} for i in range(200)]
        assert store.verify().ok

    def test_without_keep_there_is_nothing(self, store: tokpress.Store, tmp_path: Path) -> None:
        plain = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "plain")
        assert plain.kept(0) == {}
        assert plain.num_tokens == store.num_tokens

    def test_opens_in_any_reader_of_parquet(self, store: tokpress.Store) -> None:
        tables = [pq.read_table(path) for path in sorted((store.path / "shards").glob("*.docs.parquet"))]
        assert sum(len(table) for table in tables) == 200
        assert tables[0].column_names == ["id", "url"]

    def test_damage_is_found(self, store: tokpress.Store) -> None:
        path = store.path / "shards" / f"{store.shard_of(0)}.docs.parquet"
        path.write_bytes(path.read_bytes()[:-1])
        assert [problem.file for problem in store.verify().problems] == [f"shards/{path.name}"]
        with pytest.raises(StoreError, match="tokpress verify"):
            store.kept(0)

    @pytest.mark.parametrize("rows", [-1, 1])
    def test_a_row_too_few_or_too_many_is_found(self, store: tokpress.Store, rows: int) -> None:
        """With checksums that fit: whoever wrote it lost a row, or wrote one twice."""
        path = store.path / "shards" / f"{store.shard_of(0)}.docs.parquet"
        table = pq.read_table(path)
        pq.write_table(table[:rows] if rows < 0 else pa.concat_tables([table, table[:rows]]), path)
        forge(store.path)
        docs = store.shard(0).receipt.docs
        problems = [(problem.file, problem.message) for problem in verify_store(store.path).problems]
        assert problems == [(f"shards/{path.name}", f"has {docs + rows} rows for {docs} documents")]

    def test_other_fields_are_another_store(self, store: tokpress.Store, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="keep"):
            tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=store.path, keep=["id"])
