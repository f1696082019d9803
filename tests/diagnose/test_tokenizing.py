"""What each way costs a step: all of them are measured, on the user's text."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_texts, write_jsonl
from engines import samples

from tokpress.diagnose.tokenizing import compare_ways
from tokpress.errors import InputError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "texts.jsonl", make_texts(20))


def test_every_way_has_a_row(source: Path, spm: Path) -> None:
    step = 0.001
    ways = compare_ways(source, tokenizer=spm, seq_len=64, batch_size=2, step_seconds=step, workers=2, steps=3)
    assert [way.name for way in ways] == ["one by one", "batch", "parallel", "live", "pre-tokenized"]
    for way in ways:
        assert way.seconds_per_batch > 0
        assert way.share == pytest.approx(way.data_wait / (way.data_wait + step))
        assert way.tokens_per_second == pytest.approx(2 * 64 / (way.data_wait + step), rel=0.5)
    for inside in ways[:3]:  # the step waits for all of it
        assert inside.data_wait == inside.seconds_per_batch


def test_a_tokenizer_that_names_no_eos_will_do(source: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    bare.write_bytes(samples.sample("qwen2-nfc").files.files["tokenizer.json"])
    assert len(compare_ways(source, tokenizer=bare, seq_len=16, batch_size=2, step_seconds=0, steps=2)) == 5


def test_options_of_reading_are_taken(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"body": "some text that is long enough"}\n')
    ways = compare_ways(source, tokenizer="bytes", seq_len=8, batch_size=1, step_seconds=0, steps=2, text_field="body")
    assert len(ways) == 5


def test_no_text_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"other": 1}\n')
    with pytest.raises(InputError, match="no text in these inputs"):
        compare_ways(source, tokenizer="bytes", steps=2)
