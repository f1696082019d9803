"""A document as its tokens: bytes, text, spans and loss, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import tokpress
from tokpress.errors import UsageError
from tokpress.view import DocumentView, TokenView, view_document, view_tokens

TEXT = "Grüße, 日本 👍\n" * 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    directory = tmp_path_factory.mktemp("view")
    lines = [{"text": "first", "id": "a"}, {"text": TEXT, "id": "b"}, {"text": "", "id": None}]
    (directory / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "store", keep=["id"])


class TestDocument:
    def test_says_where_it_comes_from(self, store: tokpress.Store) -> None:
        view = view_document(store, 1)
        assert (view.doc, view.split, view.shard) == (1, "train", "train-00000-000")
        assert (Path(view.source).name, view.position) == ("a.jsonl", len('{"text": "first", "id": "a"}\n'))
        assert view.kept == {"id": "b"}
        assert (view.num_tokens, view.loss_tokens) == (len(TEXT.encode()) + 1, None)

    def test_from_the_end_is_the_same(self, store: tokpress.Store) -> None:
        assert view_document(store, -2) == view_document(store, 1)

    def test_outside_is_an_index_error(self, store: tokpress.Store) -> None:
        with pytest.raises(IndexError, match="document 3 is outside"):
            view_document(store, 3)

    def test_is_json_and_back(self, store: tokpress.Store) -> None:
        view = view_document(store, 1)
        assert msgspec.json.decode(msgspec.json.encode(view), type=DocumentView) == view


class TestTokens:
    def test_give_the_text_of_a_document(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        for doc in (0, 7, 40):
            view = view_document(store, doc, count=None)
            assert [token.id for token in view.tokens] == store.doc(doc).tolist()
            assert view.text == store.decode(store.doc(doc))
            assert b"".join(token.raw for token in view.tokens) == view.text.encode()

    def test_spans_are_those_of_the_bytes(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        view = view_document(store, 7, count=None)
        data = store.decode(store.doc(7)).encode()
        assert all(data[token.start : token.stop] == token.raw for token in view.tokens)
        assert view.tokens[-1].stop == len(data)

    def test_a_character_of_several_stands_with_the_last(self, store: tokpress.Store) -> None:
        tokens = view_document(store, 1, count=4).tokens
        assert [token.text for token in tokens] == ["G", "r", "", "ü"]
        assert [token.raw for token in tokens] == [b"G", b"r", b"\xc3", b"\xbc"]

    def test_half_a_character_at_an_end_is_shown_as_such(self, store: tokpress.Store) -> None:
        assert view_document(store, 1, first=3, count=2).text == "\ufffd\ufffd"
        assert view_tokens(store, store.doc(1)[:0]) == []

    def test_special_ones_are_marked(self, store: tokpress.Store) -> None:
        tokens = view_document(store, 0).tokens
        assert [token.special for token in tokens] == [False] * 5 + [True]
        assert tokens[-1].text == "<|endoftext|>"

    def test_learned_ones_are_marked(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"q": "why", "a": "so"}\n')
        store = tokpress.build(
            tmp_path / "a.jsonl",
            tokenizer="bytes",
            out=tmp_path / "store",
            prompt_field="q",
            completion_field="a",
        )
        mask = store.mask(0)
        assert mask is not None
        view = view_document(store, 0)
        assert [token.loss for token in view.tokens] == mask.astype(bool).tolist()
        assert 0 < (view.loss_tokens or 0) == mask.sum() < len(mask)
        part = view_document(store, 0, first=2, count=3)
        assert [token.loss for token in part.tokens] == mask[2:5].astype(bool).tolist()
        assert part.loss_tokens == view.loss_tokens


class TestPages:
    @pytest.mark.parametrize("count", [1, 7, 100, 10_000])
    def test_are_the_whole_one_after_the_other(self, store: tokpress.Store, count: int) -> None:
        tokens: list[TokenView] = []
        first: int | None = 0
        while first is not None:
            page = view_document(store, 1, first=first, count=count)
            assert (page.first_token, len(page.tokens) <= count) == (first, True)
            tokens += page.tokens
            first = page.next_token
        whole = view_document(store, 1, count=None).tokens
        assert [(token.id, token.start, token.stop) for token in tokens] == [
            (token.id, token.start, token.stop) for token in whole
        ]

    def test_behind_the_end_is_empty(self, store: tokpress.Store) -> None:
        page = view_document(store, 0, first=1000)
        assert (page.tokens, page.next_token) == ([], None)

    def test_of_no_tokens_has_none(self, store: tokpress.Store) -> None:
        assert view_document(store, 0, count=0).tokens == []

    def test_below_zero_is_wrong_usage(self, store: tokpress.Store) -> None:
        for first, count in ((-1, 5), (0, -5)):
            with pytest.raises(UsageError, match="no page"):
                view_document(store, 0, first=first, count=count)

    def test_a_long_document_costs_its_page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.txt").write_text("0123456789" * 200_000)
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        asked: list[int] = []
        look_up = store.engine.token_bytes

        def note(token: int) -> bytes:
            asked.append(token)
            return look_up(token)

        monkeypatch.setattr(store.engine, "token_bytes", note)
        page = view_document(store, 0, first=1_500_000, count=50)
        assert page.tokens[0].start == 1_500_000
        assert len(asked) == 10 + 50  # each of the tokens before it once
