"""A run in which nothing good was found is a failure, not an empty store."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.errors import NothingWritten

GOOD = '{"text": "words"}\n'
CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a wrong field": ("a.jsonl", '{"body": "b", "meta": {"id": 1}}\n' * 10, {}, "The first record has: body, meta.id."),
    "a field with a dot": ("a.jsonl", '{"a.b": "b"}\n', {}, r"The first record has: a\.b."),
    "a bad line": ("a.jsonl", "{nothing\n", {}, "(1 bad-json). The first of them:"),
    "all too long": (
        "a.jsonl",
        GOOD * 2000,
        {"max_length": 2, "overlong": "drop"},
        "all 2,000 were rejected (2,000 ",
    ),
    "all empty": ("a.jsonl", '{"text": ""}\n' * 30, {"drop_empty": True}, "all 30 were rejected (30 empty)"),
    "no record": ("a.jsonl", "", {}, "the inputs hold no record"),
    "lines of nothing": ("a.jsonl", "\n\n\n", {}, "the inputs hold no record"),
    "no gzip": ("a.jsonl.gz", GOOD, {}, "(1 damaged-input)"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [None, 2])
def test_is_a_failure_and_leaves_nothing(tmp_path: Path, case: str, workers: int | None) -> None:
    name, text, options, said = CASES[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(NothingWritten) as failed:
        tokpress.build(tmp_path / name, tokenizer="bytes", out=tmp_path / "store", workers=workers, **options)
    assert said in str(failed.value)
    assert failed.value.exit_code == 3
    assert not (tmp_path / "store").exists()


def test_the_corrected_command_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "words"}\n')
    with pytest.raises(NothingWritten):
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store")
    store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", text_field="body")
    assert store.text(0) == "words"


def test_one_good_record_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{bad\n" * 9 + GOOD)
    assert tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store").num_docs == 1


def test_no_document_that_was_asked_for_is_none_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert tokpress.build(tmp_path / "a.jsonl.gz", tokenizer="bytes", out=tmp_path / "store", limit=0).num_docs == 0
