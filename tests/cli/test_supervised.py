"""Supervised data and splits, as they are typed and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress

from .conftest import Cli


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "qa.jsonl"
    records = [
        {"q": f"What is {i} + {i}?", "a": str(2 * i), "part": "val" if i % 5 == 0 else "train"} for i in range(100)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def build(cli: Cli, source: Path, *options: str) -> Path:
    out = source.parent / "store"
    fields = ("--prompt-field", "q", "--completion-field", "a")
    result = cli("build", str(source), "--tokenizer", "bytes", "--out", str(out), *fields, *options)
    assert result.code == 0, result.err
    (source.parent / "said").write_text(result.err)
    return out


class TestBuild:
    def test_the_summary_counts_what_is_learned_cut_and_split(self, cli: Cli, source: Path) -> None:
        build(cli, source, "--split-field", "part", "--max-length", "19", "--prompt-separator", r"\n")
        said = (source.parent / "said").read_text()
        assert "train 80 documents, val 20 documents" in said
        assert "records truncated to --max-length" in said
        assert "loss tokens" in said

    def test_split_records_are_counted(self, cli: Cli, source: Path) -> None:
        build(cli, source, "--max-length", "10", "--overlong", "split")
        assert "documents more, of records that make several" in (source.parent / "said").read_text()

    def test_dropped_ones_are_rejects(self, cli: Cli, source: Path) -> None:
        build(cli, source, "--max-length", "17", "--overlong", "drop")
        assert "overlong" in (source.parent / "said").read_text()

    def test_json_has_the_counts(self, cli: Cli, source: Path) -> None:
        out = source.parent / "json"
        result = cli(
            *("build", str(source), "--tokenizer", "bytes", "--out", str(out), "--json", "--val-fraction", "0.3"),
            *("--prompt-field", "q", "--completion-field", "a", "--max-length", "17"),
        )
        splits = json.loads(result.out)["splits"]
        assert splits["train"]["truncated"] > 0
        assert splits["train"]["learned"] > 0

    def test_a_separator_is_unescaped(self, cli: Cli, source: Path) -> None:
        store = tokpress.open(build(cli, source, "--prompt-separator", r"\n"))
        assert store.text(1) == "What is 1 + 1?\n2"

    def test_wrong_combinations_are_wrong_usage(self, cli: Cli, source: Path) -> None:
        result = cli("build", str(source), "--tokenizer", "bytes", "--out", "x", "--prompt-field", "q")
        assert result.code == 2
        assert "--prompt-field and --completion-field go together" in result.err


class TestInspect:
    def test_shows_what_is_learned(self, cli: Cli, source: Path) -> None:
        out = build(cli, source, "--split-field", "part")
        shown = cli("inspect", str(out), "--doc", "0", "--split", "val")
        assert "2 loss tokens" in shown.out  # "0" and its end
        facts = json.loads(cli("inspect", str(out), "--doc", "0", "--split", "val", "--json").out)
        assert facts["mask"] == [0] * len("What is 0 + 0?") + [1, 1]
        assert json.loads(cli("inspect", str(out), "--json").out)["loss_tokens"] > 0

    def test_plain_text_has_no_mask(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "x"}')
        cli("build", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes", "--out", str(tmp_path / "plain"))
        assert "mask" not in json.loads(cli("inspect", str(tmp_path / "plain"), "--doc", "0", "--json").out)


def test_verify_deep_looks_into_every_split(cli: Cli, source: Path) -> None:
    out = build(cli, source, "--split-field", "part", "--max-length", "10", "--overlong", "split")
    result = cli("verify", str(out), "--deep")
    assert result.code == 0
    assert "encoded again and equal" in result.out
