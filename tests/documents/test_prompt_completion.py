"""Prompt and completion: joined, and the completion learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import InputError, UsageError
from tokpress.records import EMPTY_LOSS, MISSING_FIELD, WRONG_TYPE

from .shaping import masked, rendered, shape

FIELDS: Any = {"prompt_field": "q", "completion_field": "a"}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None)
@given(records=st.lists(st.tuples(texts, texts), min_size=1, max_size=8), separator=st.sampled_from(["", "\n", " → "]))
def test_the_completion_and_its_end_are_learned(records: list[tuple[str, str]], separator: str) -> None:
    run = shape("bytes", keep_empty_loss=True, prompt_separator=separator, **FIELDS)
    docs, rejects = run([{"q": q, "a": a} for q, a in records])
    assert rejects == []
    for i, (q, a) in enumerate(records):
        before, learned = (q + separator).encode(), a.encode()
        ids, mask = masked(docs, i)
        assert ids == [*before, *learned, 256]
        assert mask == [0] * len(before) + [1] * len(learned) + [int(bool(learned))]


def test_bos_is_never_learned_and_without_eos_there_is_none() -> None:
    run = shape("bytes", bos=True, bos_token="<|endoftext|>", eos=False, **FIELDS)
    assert masked(run([{"q": "a", "a": "b"}])[0], 0) == ([256, 97, 98], [0, 0, 1])


def test_spans_are_of_the_completion_alone() -> None:
    spans = rendered("bytes", [{"q": "é", "a": "x"}, {"q": "", "a": ""}, {"q": "", "a": "yz"}], **FIELDS).spans
    assert spans is not None
    assert (spans.starts.tolist(), spans.stops.tolist(), spans.ends.tolist()) == ([2, 0], [3, 2], [1, 1, 2])


def test_an_empty_completion_is_rejected_or_kept() -> None:
    records = [{"q": "1", "a": "x"}, {"q": "2", "a": ""}]
    docs, [reject] = shape("bytes", **FIELDS)(records)
    assert (len(docs), reject.reason, reject.position) == (1, EMPTY_LOSS, 1)
    docs, rejects = shape("bytes", keep_empty_loss=True, **FIELDS)(records)
    assert (len(docs), rejects, masked(docs, 1)[1]) == (2, [], [0, 0])


class TestBuild:
    def build(self, tmp_path: Path, lines: list[Any], **options: Any) -> tokpress.Store:
        source = tmp_path / "a.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", max_rejects="100%", **options)

    def test_a_missing_or_wrong_field_is_a_reject_with_its_place(self, tmp_path: Path) -> None:
        lines = [
            {"q": "1", "a": "x"},
            {"q": "2"},
            {"a": "3"},
            {"q": "4", "a": 4},
            {"q": None, "a": "5"},
            {"q": "6", "a": "y"},
        ]
        store = self.build(tmp_path, lines, **FIELDS)
        assert [store.text(i) for i in range(2)] == ["1x", "6y"]
        assert store.manifest.rejects == {MISSING_FIELD: 3, WRONG_TYPE: 1}
        [file] = (store.path / "rejects").iterdir()
        told = [json.loads(line) for line in file.read_text().splitlines()]
        assert [(reject["line"], reject["reason"]) for reject in told] == [
            (2, MISSING_FIELD),
            (3, MISSING_FIELD),
            (4, WRONG_TYPE),
            (5, MISSING_FIELD),
        ]
        assert "'a'" in told[0]["detail"]
        assert "'q'" in told[1]["detail"]
        assert store.verify().ok

    def test_nested_fields_and_kept_ones(self, tmp_path: Path) -> None:
        lines = [{"qa": {"q": str(i), "a": "x", "id": i}, "url": f"u{i}"} for i in range(5)]
        store = self.build(tmp_path, lines, prompt_field="qa.q", completion_field="qa.a", keep=["url", "qa.id"])
        assert store.kept(3) == {"url": "u3", "qa.id": "3"}
        assert store.text(3) == "3x"

    def test_from_a_table(self, tmp_path: Path) -> None:
        columns = {"q": pa.array(["1", None, "3", "4"]), "a": pa.array([b"x", b"y", None, b"\xff"]), "id": [1, 2, 3, 4]}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        store = tokpress.build(
            tmp_path / "a.parquet", tokenizer="bytes", out=tmp_path / "store", max_rejects="100%", keep=["id"], **FIELDS
        )
        assert ([store.text(i) for i in range(len(store))], store.kept(0)) == (["1x"], {"id": "1"})
        assert store.manifest.rejects == {"invalid-utf8": 1, MISSING_FIELD: 2}

    def test_a_table_without_the_column_is_an_error(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"q": ["1"], "b": [1]}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"no column 'a'.*--completion-field"):
            tokpress.build(tmp_path / "a.parquet", tokenizer="bytes", out=tmp_path / "store", **FIELDS)

    def test_empty_prompts_are_no_empty_documents(self, tmp_path: Path) -> None:
        store = self.build(tmp_path, [{"q": "", "a": "x"}, {"q": "", "a": ""}], drop_empty=True, **FIELDS)
        assert (len(store), store.manifest.rejects) == (1, {"empty": 1})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"prompt_field": "q"}, "go together"),
            ({"prompt_field": "q", "completion_field": "q"}, "the same field"),
            ({**FIELDS, "messages_field": "m"}, "three ways"),
            ({**FIELDS, "loss": "last"}, "--loss is for chats"),
            ({"keep_empty_loss": True}, "--keep-empty-loss"),
            ({"max_length": 0}, "--max-length"),
            ({**FIELDS, "keep": ["a"]}, "--keep names a field twice"),
            ({"prompt_field": "q", "completion_field": "q.a"}, "cannot be text and hold another"),
        ],
    )
    def test_options_that_do_not_go_together(self, tmp_path: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            self.build(tmp_path, [{"q": "1", "a": "x"}], **options)

    def test_plain_text_has_no_fields(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        with pytest.raises(UsageError, match="plain text"):
            tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store", **FIELDS)
