"""What tokpress wrote is no input, wherever it stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import write_jsonl

import tokpress
from tokpress.config import ReadConfig
from tokpress.errors import UsageError
from tokpress.sources.files import discover
from tokpress.sources.ours import is_ours


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of text with a store, a pack, an export and half an export in it."""
    directory = tmp_path / "data"
    (directory / "deep").mkdir(parents=True)
    for path in (directory / "a.jsonl", directory / "deep" / "b.jsonl"):
        write_jsonl(path, ["one", "two"])
    store = tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "deep" / "store")
    tokpress.pack(store, seq_len=8, method="bestfit")
    tokpress.export(store, to="parquet", out=directory / "exported")
    shutil.copytree(store.path / "packs" / "train-bestfit-8", directory / "packed")
    half = directory / "half.partial"
    (half / "files").mkdir(parents=True)
    plan = json.loads((directory / "exported" / "metadata.json").read_text())
    (half / "plan.json").write_text(json.dumps(plan, indent=1))
    shutil.copy(directory / "exported" / "metadata.json", half / "files" / "metadata.json")
    return directory


def found(*arguments: str | Path, out: Path | None = None) -> list[str]:
    return sorted(Path(source.path).name for source in discover(arguments, ReadConfig(), out=out))


class TestDiscover:
    def test_a_directory_is_its_text(self, data: Path) -> None:
        assert found(data) == ["a.jsonl", "b.jsonl"]

    @pytest.mark.parametrize("pattern", ["**/*", "**/*.json*", "*", "*/*"])
    def test_a_glob_matches_text_alone(self, data: Path, pattern: str) -> None:
        assert set(found(f"{data}/{pattern}")) <= {"a.jsonl", "b.jsonl"}

    def test_an_unfinished_store_is_left_out_too(self, data: Path) -> None:
        (data / "deep" / "store" / "manifest.json").unlink()
        assert found(data) == ["a.jsonl", "b.jsonl"]

    def test_what_is_about_to_be_written_is_left_out_whatever_is_in_it(self, data: Path) -> None:
        write_jsonl(data / "deep" / "c.jsonl", ["three"])
        for argument in (data, f"{data}/**/*.jsonl"):
            assert found(argument, out=data / "deep") == ["a.jsonl"]

    def test_a_file_that_is_named_is_taken(self, data: Path) -> None:
        assert found(data / "deep" / "store" / "plan.json") == ["plan.json"]

    def test_a_store_itself_is_no_text(self, data: Path) -> None:
        with pytest.raises(UsageError, match="was written by tokpress"):
            found(data / "deep" / "store")

    @pytest.mark.parametrize("name", ["plan.json", "manifest.json", "metadata.json", "index.json"])
    def test_files_of_other_people_with_such_names_are_text(self, tmp_path: Path, name: str) -> None:
        for content in ('{"format": "other", "text": "x"}', '{"format_version": 1, "rows": []}', ""):
            (tmp_path / name).write_text(content)
            assert not is_ours(tmp_path)
            assert found(tmp_path) == [name]


class TestBuild:
    def test_a_store_inside_its_inputs_is_built_gone_on_with_and_built_again(self, data: Path) -> None:
        shutil.rmtree(data / "deep" / "store")
        out = data / "tokens"
        first = tokpress.build(data, tokenizer="bytes", out=out)
        assert [Path(source.path).name for source in first.plan.inputs] == ["a.jsonl", "b.jsonl"]
        assert tokpress.build(data, tokenizer="bytes", out=out).fingerprint == first.fingerprint
        (out / "manifest.json").unlink()
        assert tokpress.build(data, tokenizer="bytes", out=out).fingerprint == first.fingerprint
        again = tokpress.build(data, tokenizer="bytes", out=out, overwrite=True)
        assert again.fingerprint == first.fingerprint
        assert again.verify().ok
