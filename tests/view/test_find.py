"""Documents by what is in them, a bounded part of the store a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tokpress
from tokpress.errors import UsageError
from tokpress.view import FindPage, find_kept, find_position, find_text, find_token
from tokpress.view.find import MOST_FOUND


def all_of(ask: Callable[[int], FindPage]) -> list[tuple[int, int | None]]:
    """Page after page, as the browser asks."""
    found, first = [], 0
    for _ in range(10_000):
        page = ask(first)
        assert page.first_doc == first
        found += [(hit.doc, hit.token) for hit in page.found]
        if page.next_doc is None:
            return found
        assert page.next_doc > first
        first = page.next_doc
    raise AssertionError("it does not end")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, bpe: Path, texts: list[str]) -> tokpress.Store:
    directory = tmp_path_factory.mktemp("find")
    records = [{"text": text, "id": f"n{i % 50}"} for i, text in enumerate(texts)]
    (directory / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[:250]))
    (directory / "b.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[250:]))
    return tokpress.build(
        [directory / "a.jsonl", directory / "b.jsonl"],
        tokenizer=bpe,
        out=directory / "store",
        keep=["id"],
        unit_size=40_000,
        shard_size=10_000,
    )


@pytest.mark.parametrize("needle", ["Straße", "naïve 日本", "the the", "\n", "HELLO", "<|endoftext|>", "zz not there"])
@pytest.mark.parametrize("most", [1_000, 2**20])
def test_a_text_is_found_where_it_is_and_nowhere_else(store: tokpress.Store, needle: str, most: int) -> None:
    expected = [i for i in range(store.num_docs) if needle in store.decode(store.doc(i))]
    found = all_of(lambda first: find_text(store, needle, first_doc=first, most_tokens=most))
    assert [doc for doc, _ in found] == expected
    for doc, token in found[:20]:
        assert token is not None
        assert (
            store.decode(store.doc(doc)[token:]).find(needle) < len(store.decode(store.doc(doc)[token : token + 1])) + 1
        )


def test_any_case(store: tokpress.Store) -> None:
    found = all_of(lambda first: find_text(store, "HELLO", first_doc=first, ignore_case=True))
    assert [doc for doc, _ in found] == [i for i in range(store.num_docs) if "hello" in store.text(i).lower()]
    assert found


def test_no_text_is_no_question(store: tokpress.Store) -> None:
    with pytest.raises(UsageError, match="no text"):
        find_text(store, "")


@pytest.mark.parametrize("most", [500, 2**22])
def test_a_token_is_found_where_it_is(store: tokpress.Store, most: int) -> None:
    token = int(store.doc(20)[3])
    expected = [
        (i, int(np.argmax(store.doc(i) == token))) for i in range(store.num_docs) if (store.doc(i) == token).any()
    ]
    assert all_of(lambda first: find_token(store, token, first_doc=first, most_tokens=most)) == expected
    assert len(expected) > MOST_FOUND  # more than a page


def test_a_kept_field(store: tokpress.Store) -> None:
    found = all_of(lambda first: find_kept(store, "id", "n7", first_doc=first, most_docs=30))
    assert [doc for doc, _ in found] == [i for i in range(store.num_docs) if store.kept(i)["id"] == "n7"]
    with pytest.raises(UsageError, match="none of the fields"):
        find_kept(store, "url", "x")


def test_every_place_in_an_input(store: tokpress.Store) -> None:
    for doc in range(store.num_docs):
        assert find_position(store, *store.where(doc)) == doc
    source, _ = store.where(0)
    assert find_position(store, source, 10**9) is None
    with pytest.raises(UsageError, match="none of the 2 inputs"):
        find_position(store, "/etc/passwd", 0)
