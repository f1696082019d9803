"""`tokpress bench tokenizer`: every way to encode, and whether its documents are those of the reference."""

from __future__ import annotations

from pathlib import Path

from tokpress.run.measure import encoder_rates

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
