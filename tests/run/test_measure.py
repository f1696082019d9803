"""`tokpress bench tokenizer`: every way to encode, and whether its documents are those of the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokpress
from tokpress.config import BuildConfig
from tokpress.run import measure
from tokpress.run.measure import encoder_rates, worker_rates

from .jobs import write_texts


class TestEncoders:
    def test_of_each_way_it_is_told_whether_documents_are_the_same(self, tmp_path: Path, bpe: Path) -> None:
        """As one long string they run into each other: fast, perhaps, but not what was asked for."""
        rates = encoder_rates([str(write_texts(tmp_path / "a.jsonl", 50))], str(bpe), {})
        same = {rate.way.split(" on ")[0]: rate.equal for rate in rates}
        assert same == {
            "huggingface, one by one": True,
            "huggingface, batch": True,
            "huggingface, concatenated": False,
            "gigatoken, first time": True,
            "gigatoken, warm": True,
        }
        assert all(rate.mb_per_s > 0 < rate.tokens_per_s for rate in rates)

    def test_also_where_the_same_ids_are_one_document(self, tmp_path: Path) -> None:
        rates = encoder_rates([str(write_texts(tmp_path / "a.jsonl", 50))], "bytes", {})
        assert [rate.way for rate in rates if not rate.equal] == ["bytes, concatenated"]
        assert len(rates) == 4


@pytest.mark.parametrize(
    ("up_to", "counts"), [(1, [1]), (3, [1, 2, 3]), (6, [1, 2, 3, 4, 6]), (48, [1, 2, 3, 4, 8, 16, 32, 48])]
)
def test_numbers_of_workers_end_with_the_one_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_to: int, counts: list[int]
) -> None:
    """The builds themselves are `tests/cli/test_bench.py`'s: so many workers would only be slow here."""
    store = tokpress.build(write_texts(tmp_path / "a.jsonl", 5), tokenizer="bytes", out=tmp_path / "store")
    asked = []

    def build(inputs: list[str], out: Path, config: BuildConfig) -> tokpress.Store:
        asked.append(config.resources.workers)
        return store

    monkeypatch.setattr(measure, "build_store", build)
    rates = list(worker_rates(["a.jsonl"], "bytes", up_to, str(tmp_path), {}))
    assert asked == [rate.workers for rate in rates] == counts
