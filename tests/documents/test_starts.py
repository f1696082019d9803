"""Where tokens start: from the bytes of the vocabulary and from the reference, and both say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from conftest import HARD_TEXTS
from engines.samples import fast, reference, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpress.batches import Ids, TokenBatch
from tokpress.documents.starts import TokenStarts
from tokpress.engines.base import Engine, byte_starts
from tokpress.engines.load import reference_engine
from tokpress.errors import ParityError, TokenizerError
from tokpress.records import TokenizerFiles

BYTE_LEVEL = ["gpt2", "cl100k", "o200k", "qwen2", "added-tokens"]
OTHERS = [
    "qwen2-nfc",
    "llama2",
    "wordpiece",
    "unigram-json",
    "sp-unigram-unk-prefix-nmt_nfkc",
    "sp-bpe-fallback-prefix-identity",
]
TEXTS = [*HARD_TEXTS, "<|endoftext|>a<|endoftext|> b", "  two  spaces ", "ﬁ e\u0301 ½", "x <s> y</s>"]
some_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(TEXTS)


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def found(engine: Engine, texts: list[str]) -> list[list[int]]:
    """In the bytes of each text."""
    tokens = engine.encode(strings(texts))
    starts = TokenStarts(engine).find(strings(texts), tokens)
    before = np.cumsum([0, *(len(text.encode()) for text in texts)])
    return [(part - begin).tolist() for part, begin in zip(np.split(starts, tokens.ends[:-1]), before, strict=False)]


class TestBytes:
    @pytest.mark.parametrize("policy", ["text", "parse"])
    @pytest.mark.parametrize("name", BYTE_LEVEL)
    def test_say_what_the_reference_says(self, name: str, policy: str) -> None:
        engine = reference(name, policy)  # type: ignore[arg-type]
        theirs = [list(starts) for starts in engine.token_starts(strings(TEXTS))]
        # A byte in the middle of a character: the library gives the character's start for all of its tokens.
        ours = [_in_characters(text, starts) for text, starts in zip(TEXTS, found(engine, TEXTS), strict=True)]
        assert ours == theirs

    @settings(deadline=None, max_examples=50)
    @given(texts=st.lists(some_text, min_size=1, max_size=5))
    def test_for_any_text(self, texts: list[str]) -> None:
        engine = fast("cl100k")
        theirs = [list(starts) for starts in engine.token_starts(strings(texts))]
        assert [
            _in_characters(text, starts) for text, starts in zip(texts, found(engine, texts), strict=True)
        ] == theirs

    def test_none_is_encoded_again(self) -> None:
        engine = _Unsaid(sample("gpt2").files)
        assert found(engine, ["ab é", ""])[0][0] == 0  # it would have raised

    def test_a_slice_of_a_larger_array(self) -> None:
        engine = reference("gpt2")
        text = strings(["skipped 字", "one two", "", "three"])[1:]
        tokens = engine.encode(text)
        starts = TokenStarts(engine).find(text, tokens)
        assert [part[:1].tolist() for part in np.split(starts, tokens.ends[:-1])] == [[0], [], [7]]

    def test_bytes_are_their_own(self) -> None:
        assert found(reference_engine(TokenizerFiles("bytes", {}), "text"), ["é!", "", "x"]) == [[0, 1, 2], [], [0]]


class TestReference:
    @pytest.mark.parametrize("name", OTHERS)
    def test_is_asked_where_the_bytes_are_not_those_of_the_text(self, name: str) -> None:
        engine = reference(name)
        for text, starts in zip(TEXTS, found(engine, TEXTS), strict=True):
            assert len(starts) == len(engine.encode(strings([text])).ids)
            assert starts == sorted(starts)
            assert all(0 <= start <= len(text.encode()) for start in starts)

    def test_knows_a_prefix_space_and_a_normaliser(self) -> None:
        engine = reference("sp-unigram-unk-prefix-nmt_nfkc")
        [starts] = found(engine, ["ﬁx  y"])
        ids = engine.encode(strings(["ﬁx  y"])).ids
        pieces = [engine.token_bytes(int(token)).decode() for token in ids]
        assert "".join(pieces) == " fix y"
        at = dict(zip(pieces, starts, strict=True)) if len(set(pieces)) == len(pieces) else {}
        assert starts[-1] == len("ﬁx  ".encode()) or at.get(" y") == len("ﬁx".encode())

    def test_parses_control_symbols(self) -> None:
        engine = reference("sp-bpe-fallback-prefix-identity", "parse")
        [starts] = found(engine, ["é</s>b"])
        tokens = engine.encode(strings(["é</s>b"])).ids.tolist()
        assert starts[tokens.index(engine.info.special_tokens["</s>"])] == 2

    def test_another_number_of_tokens_is_an_error(self) -> None:
        engine = reference("wordpiece")
        with pytest.raises(ParityError, match="no mask can be made"):
            TokenStarts(engine).find(strings(["Éa b"]), TokenBatch(np.array([0], np.uint32), np.array([1])))

    def test_starts_that_go_backwards_are_put_in_order(self) -> None:
        """A token that comes from before its neighbour starts where that one does: whoever looks for spans goes by order."""
        assert found(_Backwards(TokenizerFiles("bytes", {})), ["X", "abc", "Y"]) == [[0], [1, 1, 2], [0]]

    def test_an_engine_that_cannot_say_is_an_error(self) -> None:
        engine = reference_engine(TokenizerFiles("bytes", {}), "text")
        with pytest.raises(TokenizerError, match="does not say where its tokens start"):
            engine.token_starts(strings(["a"]))


class _Unsaid(Engine):
    """An engine that must not be asked."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._engine = reference_engine(files, "text")
        self.name, self.info = "unsaid", self._engine.info

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return self._engine.encode(text, threads=threads)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self._engine.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._engine.token_bytes(token)


class _Backwards(_Unsaid):
    """Bytes whose normaliser has made capitals of them, and moved some."""

    def token_bytes(self, token: int) -> bytes:
        return super().token_bytes(token).upper()

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:
        return [[1, 0, 2] for _ in range(len(text))]


def _in_characters(text: str, starts: list[int]) -> list[int]:
    """Bytes inside a character as its first one."""
    data = text.encode()
    moved = []
    for start in starts:
        while start < len(data) and data[start] & 0xC0 == 0x80:
            start -= 1
        moved.append(start)
    return moved


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_characters_as_bytes(text: str, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(text))))
    assert list(byte_starts(text, starts)) == [len(text[:start].encode()) for start in starts]
