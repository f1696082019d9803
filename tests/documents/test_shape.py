"""Lengths: what is too long is cut, left out or split, and every record is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

import tokpress
from documents.shaping import engine_for, job_for, masked, shape, shaper_for
from tokpress.records import EMPTY_LOSS, OVERLONG, Counts
from tokpress.run.deep import reencode_sample

FIELDS: Any = {"prompt_field": "q", "completion_field": "a"}
lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=12)


def records(sizes: list[tuple[int, int]]) -> list[dict[str, str]]:
    return [{"q": "q" * q, "a": "a" * a} for q, a in sizes]


def whole(q: int, a: int) -> tuple[list[int], list[int]]:
    return [*b"q" * q, *b"a" * a, 256], [0] * q + [1] * a + [int(a > 0)]


@settings(deadline=None)
@given(sizes=lengths, limit=st.integers(1, 10))
def test_truncated_documents_are_the_heads_of_whole_ones(sizes: list[tuple[int, int]], limit: int) -> None:
    docs, rejects = shape("bytes", max_length=limit, keep_empty_loss=True, **FIELDS)(records(sizes))
    assert rejects == []
    for i, (q, a) in enumerate(sizes):
        ids, mask = whole(q, a)
        assert masked(docs, i) == (ids[:limit], mask[:limit])
    assert (docs.truncated is None and max(q + a for q, a in sizes) < limit) or (
        docs.truncated is not None and docs.truncated.tolist() == [q + a + 1 > limit for q, a in sizes]
    )


@settings(deadline=None)
@given(sizes=lengths, limit=st.integers(1, 10))
def test_split_documents_are_the_whole_ones_in_pieces(sizes: list[tuple[int, int]], limit: int) -> None:
    docs, rejects = shape("bytes", max_length=limit, overlong="split", keep_empty_loss=True, **FIELDS)(records(sizes))
    assert rejects == []
    pieces = [masked(docs, i) for i in range(len(docs))]
    assert all(len(ids) <= limit for ids, _ in pieces)
    joined: dict[int, tuple[list[int], list[int]]] = {}
    for position, (ids, mask) in zip(docs.positions.tolist(), pieces, strict=True):
        before = joined.get(position, ([], []))
        joined[position] = before[0] + ids, before[1] + mask
    assert list(joined.values()) == [whole(q, a) for q, a in sizes]
    assert docs.records == len(sizes)


@settings(deadline=None)
@given(sizes=lengths, limit=st.integers(1, 10))
def test_dropped_records_are_rejects(sizes: list[tuple[int, int]], limit: int) -> None:
    docs, rejects = shape("bytes", max_length=limit, overlong="drop", keep_empty_loss=True, **FIELDS)(records(sizes))
    long = [i for i, (q, a) in enumerate(sizes) if q + a + 1 > limit]
    assert [(reject.position, reject.reason) for reject in rejects] == [(i, OVERLONG) for i in long]
    assert docs.positions.tolist() == [i for i in range(len(sizes)) if i not in long]


def test_a_record_that_is_dropped_for_its_length_is_no_bad_one_whatever_else_it_is() -> None:
    """It was left out on request, so it does not count for --max-rejects."""
    docs, rejects = shape("bytes", max_length=5, overlong="drop", **FIELDS)(records([(9, 0), (2, 0), (1, 1)]))
    assert [(reject.position, reject.reason) for reject in rejects] == [(0, OVERLONG), (1, EMPTY_LOSS)]
    assert docs.positions.tolist() == [2]


def test_a_record_whose_answer_was_cut_off_is_not_learned_from() -> None:
    docs, [reject] = shape("bytes", max_length=3, **FIELDS)(records([(5, 2), (1, 5)]))
    assert (len(docs), reject.reason, reject.position) == (1, EMPTY_LOSS, 0)


def test_the_memory_that_a_mask_takes_is_counted() -> None:
    """Places of tokens are held while it is made: a run that does not count them exceeds its --memory."""
    plain, masks = job_for("bytes"), job_for("bytes", **FIELDS)
    assert shaper_for(plain, engine_for(plain)).memory_per_byte == 0
    assert shaper_for(masks, engine_for(masks)).memory_per_byte >= 16  # an int64 for each token's start, and one more


def test_plain_text_may_have_a_length_too() -> None:
    docs, _ = shape("bytes", max_length=4)([{"text": "abcdef"}, {"text": "g"}])
    assert docs.mask is None
    assert [docs.tokens.doc(i).tolist() for i in range(2)] == [[*b"abcd"], [*b"g", 256]]


class TestBuild:
    def build(self, tmp_path: Path, **options: Any) -> tokpress.Store:
        lines = [{"q": f"{i}:", "a": "x" * (i % 40), "id": i} for i in range(300)]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        defaults: Any = {"unit_size": 3000, "shard_size": 400, "keep_empty_loss": True, "keep": ["id"]}
        return tokpress.build(
            tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", **(FIELDS | defaults | options)
        )

    def test_counts_close_whatever_is_done(self, tmp_path: Path) -> None:
        for how in ("truncate", "drop", "split"):
            store = self.build(tmp_path, max_length=20, overlong=how, overwrite=True, val_fraction=0.3)
            splits = store.manifest.splits
            assert store.verify().problems == []
            assert all(sample.problems == [] for sample in (reencode_sample(store.split(name), 80) for name in splits))
            counts = store.manifest.totals
            assert counts.read == counts.written + counts.rejected == 300
            docs, continued = (sum(getattr(split, name) for split in splits.values()) for name in ("docs", "continued"))
            assert counts.written == docs - continued
            assert (continued > 0) == (how == "split")
            assert (sum(split.truncated for split in splits.values()) > 0) == (how == "truncate")
            assert (store.manifest.rejects.get(OVERLONG, 0) > 0) == (how == "drop")

    def test_records_that_were_left_out_on_request_are_no_bad_ones(self, tmp_path: Path) -> None:
        store = self.build(tmp_path, max_length=5, overlong="drop", max_rejects="0")
        assert store.manifest.rejects[OVERLONG] > 200

    def test_a_split_record_keeps_its_fields_and_stays_in_one_shard_and_split(self, tmp_path: Path) -> None:
        store = self.build(tmp_path, max_length=7, overlong="split", val_fraction=0.5)
        seen: dict[str, str] = {}
        for name in ("train", "val"):
            part = store.split(name)
            for i in range(len(part)):
                where = f"{name} {part.shard_of(i)}"
                kept = part.kept(i)["id"]
                assert kept is not None
                assert seen.setdefault(kept, where) == where
        assert len(seen) == 300

    def test_a_limit_counts_records(self, tmp_path: Path) -> None:
        store = self.build(tmp_path, max_length=20, overlong="split", limit=70)
        assert store.manifest.totals == Counts(read=70, written=70, rejected=0)
        assert {store.kept(i)["id"] for i in range(len(store))} == set(map(str, range(70)))
        dropped = self.build(tmp_path, max_length=20, overlong="drop", limit=70, overwrite=True)
        assert dropped.manifest.totals.written == 70
        assert dropped.manifest.totals.rejected > 0
        assert dropped.verify().ok

    def test_input_that_is_rendered_in_several_parts_is_counted_once(self, tmp_path: Path) -> None:
        """Short questions with long answers: a batch of the former is many of the latter."""
        lines = [json.dumps({"q": "q", "a": "long answer " * 50}) + "\n" for _ in range(60)]
        (tmp_path / "b.jsonl").write_text("".join(lines))
        store = tokpress.build(tmp_path / "b.jsonl", tokenizer="bytes", out=tmp_path / "s", batch_bytes=1000, **FIELDS)
        run = store.manifest.run
        assert run.input_bytes == sum(map(len, lines))
        assert run.text_bytes == store.num_tokens - 60  # of text a byte is a token; EOS is none
        assert store.num_docs == 60

    def test_an_audited_record_counts_once_however_it_is_split(self, tmp_path: Path, bpe: Path) -> None:
        source = write_jsonl(tmp_path / "b.jsonl", [f"document number {i} of a few" for i in range(10)])
        options: Any = {"max_length": 3, "overlong": "split", "audit_rate": 1.0}
        store = tokpress.build(source, tokenizer=bpe, out=tmp_path / "audited", **options)
        assert len(store) > 20
        assert store.manifest.audit.docs == store.manifest.totals.written == 10

    @pytest.mark.parametrize("change", ["mask", "continued"])
    def test_forged_masks_and_counts_are_found(self, tmp_path: Path, change: str) -> None:
        import msgspec
        from store.tampering import forge

        store = self.build(tmp_path, max_length=7, overlong="split")
        if change == "mask":
            path = store.path / "shards" / f"{store.shard_of(0)}.mask"
            path.write_bytes(b"\x02" + path.read_bytes()[1:])
            forge(store.path)
            assert "made of 0 and 1" in store.verify().problems[0].message
            path.write_bytes(b"\x01" * path.stat().st_size)
            forge(store.path)
            assert "its receipt says" in store.verify().problems[0].message
        else:
            counts = store.manifest.splits["train"].shards[0].counts
            more = Counts(read=counts.read + 1, written=counts.written + 1, rejected=0)
            forge(
                store.path,
                lambda receipt: (
                    msgspec.structs.replace(receipt, counts=more, continued=receipt.continued - 1)
                    if (receipt.unit, receipt.number) == (0, 0)
                    else receipt
                ),
            )
            assert any("continued records" in problem.message for problem in store.verify().problems)
