"""Two tokenizers on one text: cuts that both have, and those that one has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.load import load_files, reference_engine
from tokpress.view import align_stores, compare_text


def engine_of(spec: Path | str) -> Engine:
    return reference_engine(load_files(TokenizerConfig(spec=str(spec))), "text")


def test_a_tokenizer_and_itself_do_not_differ(bpe: Path) -> None:
    view = compare_text("Straße und 日本 👍🏽 naïve", {"a": engine_of(bpe), "b": engine_of(bpe)})
    assert view.regions == 0
    assert not any(flag for side in view.sides for flag in side.differs)


def test_each_side_spells_the_text_and_says_where_it_differs(bpe: Path) -> None:
    text = "the naïve 日本 token 👍🏽\n"
    view = compare_text(text, {"a": engine_of(bpe), "b": engine_of("bytes")})
    for side in view.sides:
        assert "".join(side.texts) == text
        assert side.starts[0] == 0
        assert side.stops[-1] == len(text.encode())
    first, second = view.sides
    for k, differs in enumerate(first.differs):  # a byte is the same only if the other's token is that byte
        assert differs == (first.stops[k] - first.starts[k] > 1)
    assert sum(second.differs) == sum(
        first.stops[k] - first.starts[k] for k in range(len(first.ids)) if first.differs[k]
    )
    assert view.regions == sum(first.differs)


def test_no_text_has_no_tokens(bpe: Path) -> None:
    view = compare_text("", {"a": engine_of(bpe), "b": engine_of("bytes")})
    assert [side.num_tokens for side in view.sides] == [0, 0]


@pytest.fixture
def two(tmp_path: Path, bpe: Path, texts: list[str]) -> tuple[tokpress.Store, tokpress.Store]:
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:40]))
    first = tokpress.build(source, tokenizer=bpe, out=tmp_path / "one")
    return first, tokpress.build(source, tokenizer="bytes", out=tmp_path / "two", drop_empty=True)


def test_stores_are_aligned_by_the_record(two: tuple[tokpress.Store, tokpress.Store]) -> None:
    first, second = two
    missing = 0
    for doc in range(first.num_docs):
        view = align_stores(first, doc, second)
        if view.docs[1] is None:
            missing += 1
            assert first.text(doc) == ""  # which the other left out
            continue
        assert second.text(view.docs[1]) == first.text(doc)
        assert view.compared is not None
        assert view.compared.same_text
        assert not view.compared.cut
        assert view.compared.sides[1].num_tokens == len(second.doc(view.docs[1]))
    assert missing
