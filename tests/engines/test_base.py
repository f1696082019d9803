"""The small parts that engines are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import TokenBatch
from tokpress.engines.base import concat_tokens, from_lists, known_ids, no_panic, parse_literals
from tokpress.errors import IdRangeError, TokenizerError
from tokpress.records import TokenizerFiles

from .fuzz import unhurried

id_lists = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), max_size=8)


def lists(tokens: TokenBatch) -> list[list[int]]:
    return [tokens.doc(i).tolist() for i in range(len(tokens))]


class TestFingerprint:
    FILES = TokenizerFiles("huggingface", {"a": b"1", "b": b"2"})

    def test_does_not_depend_on_the_order_of_files(self) -> None:
        assert TokenizerFiles("huggingface", {"b": b"2", "a": b"1"}).fingerprint == self.FILES.fingerprint

    @pytest.mark.parametrize(
        ("kind", "files"),
        [
            ("tiktoken", {"a": b"1", "b": b"2"}),
            ("huggingface", {"a": b"1", "b": b"3"}),
            ("huggingface", {"a": b"1", "c": b"2"}),
            ("huggingface", {"a": b"2", "b": b"1"}),
            ("huggingface", {"a": b"1\0b\x001\x002"}),  # the other file's header and content, as data
            ("huggingface", {"a": b"1"}),
        ],
    )
    def test_depends_on_everything_else(self, kind: str, files: dict[str, bytes]) -> None:
        assert TokenizerFiles(kind, files).fingerprint != self.FILES.fingerprint


class TestTokenBatches:
    @unhurried
    @given(id_lists)
    def test_lists_become_flat_arrays_and_come_back(self, documents: list[list[int]]) -> None:
        tokens = from_lists(documents)
        assert lists(tokens) == documents
        assert tokens.ids.dtype == np.uint32
        assert tokens.ends.dtype == np.int64

    def test_an_id_that_does_not_fit_is_an_error(self) -> None:
        with pytest.raises(OverflowError):
            from_lists([[2**32]])

    @unhurried
    @given(id_lists, st.data())
    def test_slices(self, documents: list[list[int]], data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(documents)))
        stop = data.draw(st.integers(start, len(documents)))
        part = from_lists(documents).part(start, stop)
        assert lists(part) == documents[start:stop]
        assert len(part.ids) == sum(map(len, documents[start:stop]))

    @unhurried
    @given(st.lists(id_lists, min_size=1, max_size=4))
    def test_parts_are_joined(self, parts: list[list[list[int]]]) -> None:
        joined = concat_tokens([from_lists(part) for part in parts])
        assert lists(joined) == [document for part in parts for document in part]


class TestKnownIds:
    @pytest.mark.parametrize("ids", [[], [0, 9], np.array([9, 0], np.uint16), np.empty(0, np.uint32)])
    def test_of_the_vocabulary(self, ids: list[int]) -> None:
        assert known_ids(ids, 10) == [int(token) for token in ids]

    @pytest.mark.parametrize(("ids", "wrong"), [([10], 10), ([1, 2**32 - 1], 2**32 - 1), ([-1], -1), ([3, 99, -5], 99)])
    def test_the_first_other_one_is_named(self, ids: list[int], wrong: int) -> None:
        with pytest.raises(IdRangeError, match=rf"id {wrong} is outside the tokenizer's vocabulary of 10 tokens"):
            known_ids(ids, 10)


class PanicException(BaseException):
    pass


class TestNoPanic:
    def test_a_panic_becomes_an_error_of_ours(self) -> None:
        with pytest.raises(TokenizerError, match=r"it failed: index out of bounds"), no_panic("it failed"):
            raise PanicException("index out of bounds")

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
    def test_everything_else_passes(self, error: type[BaseException]) -> None:
        with pytest.raises(error), no_panic("it failed"):
            raise error


SPECIAL = {"<a>": 1000, "<a>>": 1001, "(": 1002}  # one begins like another; one means something to `re`


def codes(parts: list[str]) -> list[list[int]]:
    return [list(map(ord, part)) for part in parts]


class TestParseLiterals:
    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("", []),
            ("xy", [120, 121]),
            ("<a>", [1000]),
            ("x<a>y", [120, 1000, 121]),
            ("<a>>", [1001]),
            ("<a><a>>(", [1000, 1001, 1002]),
            ("<a", [60, 97]),
        ],
    )
    def test_the_longest_literal_wins(self, text: str, ids: list[int]) -> None:
        assert parse_literals(codes, [text], SPECIAL) == [ids]

    def test_without_special_tokens_all_is_text(self) -> None:
        assert parse_literals(codes, ["<a>", ""], {}) == [[60, 97, 62], []]
