"""Inputs of which nothing can come are refused at once, not after minutes of silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

import tokpress
from tokpress.config import ReadConfig
from tokpress.documents.batching import coalesce
from tokpress.errors import NothingWritten, TooManyRejects
from tokpress.run import events
from tokpress.run.events import Event
from tokpress.sources import sample
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts

GOOD = json.dumps({"text": "a document like any other"}) + "\n"


def built(path: Path, out: Path, **options: object) -> list[Event]:
    """What was told until the error came."""
    heard: list[Event] = []
    with pytest.raises(TooManyRejects, match=r"of .* records were rejected"):
        tokpress.build(path, tokenizer="bytes", out=out, reporter=heard.append, **options)  # type: ignore[arg-type]
    return heard


class TestSample:
    @pytest.mark.parametrize("junk", ["x\n", "{\n", '{"text": 1}\n', '{"other": "x"}\n', "[]\n"])
    def test_without_one_good_record_is_the_end(self, tmp_path: Path, junk: str) -> None:
        (tmp_path / "a.jsonl").write_text(junk * 100_000)
        heard = built(tmp_path / "a.jsonl", tmp_path / "out")
        assert not [event for event in heard if isinstance(event, events.Started | events.TokenizerLoaded)]
        assert not (tmp_path / "out").exists()

    def test_looks_at_few_bad_records_of_a_block(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.jsonl").write_text("x\n" * 500_000)
        seen: list[int] = []
        [source] = discover([tmp_path / "a.jsonl"], ReadConfig())
        for _ in sample_texts(
            [source], ReadConfig(), total_bytes=1000, seen=lambda batch: seen.append(len(batch.rejects))
        ):
            pass
        assert 1000 < sum(seen) < 20_000

    def test_more_than_a_number_of_bad_records_is_the_end_whatever_else_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text((GOOD + "x\n" * 10) * 20_000)
        heard = built(tmp_path / "a.jsonl", tmp_path / "out", max_rejects=50)
        assert not [event for event in heard if isinstance(event, events.Started)]

    def test_is_not_judged_where_all_may_be_bad(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text("x\n" * 2_000)
        options = {"tokenizer": "bytes", "out": tmp_path / "out", "max_rejects": "100%"}
        with pytest.raises(NothingWritten, match="all 2,000 were rejected"):  # by the run, after it read all of them
            tokpress.build(tmp_path / "a.jsonl", **options)  # type: ignore[arg-type]

    def test_nor_where_the_bad_ones_are_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(GOOD * 100_000 + "x\n" * 1_000_000)
        options = {"tokenizer": "bytes", "out": tmp_path / "out", "max_rejects": 50, "limit": 10}
        assert tokpress.build(tmp_path / "a.jsonl", **options).num_docs == 10  # type: ignore[arg-type]

    def test_some_good_records_are_left_to_the_run_to_count(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(("x\n" * 100 + GOOD) * 100)
        heard = built(tmp_path / "a.jsonl", tmp_path / "out")
        assert [event for event in heard if isinstance(event, events.Started)]


class TestBounds:
    def test_of_decompressed_bytes(self, tmp_path: Path) -> None:
        """What is small on the disk may be endless."""
        path = tmp_path / "a.jsonl.zst"
        path.write_bytes(zstandard.compress(b"\n" * 400_000_000 + GOOD.encode()))
        assert path.stat().st_size < 100_000
        seen: list[int] = []
        [source] = discover([path], ReadConfig())
        texts = sample_texts(
            [source], ReadConfig(), total_bytes=500_000, seen=lambda batch: seen.append(batch.next_position)
        )
        assert list(texts) == []
        assert max(seen) < 50_000_000

    def test_of_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter(range(0, 10**6, 5))
        monkeypatch.setattr(sample, "monotonic", lambda: next(times))
        (tmp_path / "a.jsonl").write_text(GOOD * 100_000)
        [source] = discover([tmp_path / "a.jsonl"], ReadConfig())
        some = sum(len(text) for text in sample_texts([source], ReadConfig(), total_bytes=500_000))
        assert 0 < some < 5_000


class TestProgress:
    def test_what_holds_no_text_is_told_of_too(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text("\n" * 1_000_000)
        [source] = discover([tmp_path / "a.jsonl"], ReadConfig())
        batches = list(coalesce(open_reader(source, 0, ReadConfig(), 1000).read(), 10**9))
        assert 5 < len(batches) < 100
        assert sum(batch.input_bytes for batch in batches) == 1_000_000
