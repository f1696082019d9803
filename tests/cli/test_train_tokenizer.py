"""`tokpress train-tokenizer`: a tokenizer from the same inputs that `build` takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress

from .conftest import TEXTS, Cli


class TestTrainTokenizer:
    @pytest.mark.parametrize(
        ("model", "name"), [("bpe", "tokenizer.json"), ("sp-bpe", "spm.model"), ("sp-unigram", "spm.model")]
    )
    def test_writes_one_that_build_takes(self, cli: Cli, source: Path, tmp_path: Path, model: str, name: str) -> None:
        out = tmp_path / "new" / name
        result = cli("train-tokenizer", source, "--vocab-size", 320, "--model", model, "--out", out)
        assert result.code == 0, result.err
        assert result.out == f"{out}\n"
        assert f"tokpress build ... --tokenizer {out}" in result.err
        built = cli("build", source, "--tokenizer", out, "--out", tmp_path / "store")
        assert built.code == 0, built.err
        store = tokpress.open(tmp_path / "store")
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS

    @pytest.mark.parametrize(("model", "name"), [("bpe", "t.json"), ("sp-unigram", "t.model")])
    def test_fewer_tokens_than_asked_for_are_said(
        self, cli: Cli, source: Path, tmp_path: Path, model: str, name: str
    ) -> None:
        result = cli("train-tokenizer", source, "--vocab-size", 5000, "--model", model, "--out", tmp_path / name)
        assert result.code == 0, result.err
        vocab_size = tokpress.ParallelTokenizer(tmp_path / name).engine.info.vocab_size
        assert vocab_size < 5000
        assert f"{vocab_size:,} tokens, not 5,000" in result.err

    def test_a_file_that_is_there_is_replaced_only_if_asked_for(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        out = tmp_path / "t.json"
        out.write_text("{}")
        refused = cli("train-tokenizer", source, "--vocab-size", 320, "--out", out)
        assert (refused.code, out.read_text()) == (2, "{}")
        assert "is there already" in refused.err
        assert "--overwrite" in refused.err
        assert cli("train-tokenizer", source, "--vocab-size", 320, "--overwrite", "--out", out).code == 0
        assert len(out.read_bytes()) > 1000

    def test_a_separator_is_unescaped(self, cli: Cli, tmp_path: Path) -> None:
        source, out = tmp_path / "all.txt", tmp_path / "tokenizer.json"
        source.write_text("\n\n".join(["some words"] * 50))
        result = cli("train-tokenizer", source, "--separator", r"\n\n", "--vocab-size", 300, "--out", out)
        assert result.code == 0, result.err
        vocabulary = json.loads(out.read_text("utf-8"))["model"]["vocab"]
        assert "Ġwords" in vocabulary
        assert "ĊĊ" not in vocabulary  # line ends, which stand between documents and in none

    @pytest.mark.parametrize(("model", "name"), [("bpe", "x.model"), ("sp-bpe", "x.json")])
    def test_a_name_of_the_wrong_kind_is_wrong_usage(
        self, cli: Cli, source: Path, tmp_path: Path, model: str, name: str
    ) -> None:
        result = cli("train-tokenizer", source, "--vocab-size", 320, "--model", model, "--out", tmp_path / name)
        assert result.code == 2
        assert "Name it like tokenizer." in result.err
        assert not (tmp_path / name).exists()

    def test_no_input_is_wrong_usage(self, cli: Cli, tmp_path: Path) -> None:
        result = cli("train-tokenizer", tmp_path / "none.jsonl", "--vocab-size", 320, "--out", tmp_path / "t.json")
        assert result.code == 2
        assert "no such file" in result.err
