"""BOS, EOS, range check and dtype: a document as it is stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import TokenBatch
from tokpress.config import TokenizerConfig
from tokpress.engines.base import from_lists
from tokpress.engines.framing import Frame, frame_for
from tokpress.errors import IdRangeError, TokenizerError
from tokpress.records import TokenizerInfo

from .fuzz import unhurried

SIZES = [2, 255, 256, 257, 65_535, 65_536, 65_537, 200_000, 2**32]


def framed(documents: list[list[int]], frame: Frame) -> list[list[int]]:
    """The same, written as one would say it."""
    bos = [] if frame.bos_id is None else [frame.bos_id]
    eos = [] if frame.eos_id is None else [frame.eos_id]
    return [bos + document + eos for document in documents]


def apply(documents: list[list[int]], frame: Frame) -> list[list[int]]:
    tokens = frame.apply(from_lists(documents))
    assert tokens.ids.dtype == frame.dtype
    assert tokens.ends.dtype == np.int64
    assert len(tokens) == len(documents)
    assert len(tokens.ids) == (tokens.ends[-1] if len(documents) else 0)
    return [tokens.doc(i).tolist() for i in range(len(documents))]


@st.composite
def framings(draw: st.DrawFn) -> tuple[list[list[int]], Frame]:
    vocab_size = draw(st.sampled_from(SIZES))
    token = st.integers(0, vocab_size - 1)
    documents = draw(st.lists(st.lists(token, max_size=6), max_size=8))
    return documents, Frame(draw(st.none() | token), draw(st.none() | token), vocab_size)


class TestApply:
    @unhurried
    @given(framings())
    def test_each_document_gets_its_frame(self, framing: tuple[list[list[int]], Frame]) -> None:
        documents, frame = framing
        assert apply(documents, frame) == framed(documents, frame)

    @pytest.mark.parametrize("bos", [None, 1], ids=["", "bos"])
    @pytest.mark.parametrize("eos", [None, 2], ids=["", "eos"])
    @pytest.mark.parametrize("documents", [[], [[]], [[], []], [[], [7], []]], ids=str)
    @pytest.mark.parametrize("vocab_size", [100, 100_000])
    def test_nothing_to_frame(
        self, documents: list[list[int]], bos: int | None, eos: int | None, vocab_size: int
    ) -> None:
        frame = Frame(bos, eos, vocab_size)
        assert apply(documents, frame) == framed(documents, frame)

    def test_ids_may_lie_apart_in_memory(self) -> None:
        every_second = TokenBatch(np.arange(10, dtype=np.uint32)[::2], np.array([2, 5]))
        assert Frame(None, 9, 10).apply(every_second).ids.tolist() == [0, 2, 9, 4, 6, 8, 9]

    def test_the_batch_is_left_as_it_was(self) -> None:
        tokens = from_lists([[1, 2], [], [3]])
        Frame(4, 5, 10).apply(tokens)
        assert tokens.ids.tolist() == [1, 2, 3]
        assert tokens.ends.tolist() == [2, 2, 3]


class TestDtype:
    @pytest.mark.parametrize(
        ("vocab_size", "dtype"),
        [(257, "<u2"), (65_535, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (200_000, "<u4"), (2**32, "<u4")],
    )
    def test_holds_every_id_of_the_vocabulary(self, vocab_size: int, dtype: str) -> None:
        frame = Frame(None, None, vocab_size)
        assert frame.dtype == np.dtype(dtype)
        assert apply([[0, vocab_size - 1]], frame) == [[0, vocab_size - 1]]


class TestRange:
    @pytest.mark.parametrize("vocab_size", [257, 65_535, 65_536, 65_537, 100_000])
    @pytest.mark.parametrize("beyond", [0, 1, 2**16, 2**31])
    def test_an_id_that_does_not_fit_is_an_error_and_never_wraps(self, vocab_size: int, beyond: int) -> None:
        token = vocab_size + beyond
        with pytest.raises(IdRangeError, match=f"id {token}, outside its vocabulary of {vocab_size} tokens"):
            Frame(None, 1, vocab_size).apply(from_lists([[5], [1, token]]))


def info(**named: str) -> TokenizerInfo:
    special = {"<s>": 1, "</s>": 2, "<pad>": 7}
    return TokenizerInfo(kind="sentencepiece", fingerprint="", vocab_size=100, special_tokens=special, **named)


class TestFrameFor:
    @pytest.mark.parametrize(
        ("options", "bos_id", "eos_id"),
        [
            ({}, None, 2),
            ({"bos": True}, 1, 2),
            ({"eos": False}, None, None),
            ({"bos": True, "eos": False}, 1, None),
            ({"eos_token": "<pad>"}, None, 7),
            ({"bos": True, "bos_token": "<pad>", "eos_token": "<s>"}, 7, 1),
            ({"bos_token": "<pad>"}, None, 2),  # a token without --bos changes nothing
        ],
    )
    def test_ids_of_the_tokens_that_were_asked_for(
        self, options: dict[str, object], bos_id: int | None, eos_id: int | None
    ) -> None:
        config = TokenizerConfig(spec="x", **options)  # type: ignore[arg-type]
        assert frame_for(config, info(bos_token="<s>", eos_token="</s>")) == Frame(bos_id, eos_id, 100)

    def test_no_eos_lists_the_special_tokens_and_the_flags(self) -> None:
        with pytest.raises(TokenizerError) as raised:
            frame_for(TokenizerConfig(spec="x"), info())
        for part in ("it names no EOS token", "<s>, </s>, <pad>", "--eos-token '<s>'", "--no-eos"):
            assert part in str(raised.value)

    def test_no_bos_names_its_own_flags(self) -> None:
        with pytest.raises(TokenizerError, match=r"it names no BOS token\..*--bos-token '<s>', or build with --no-bos"):
            frame_for(TokenizerConfig(spec="x", bos=True), info(eos_token="</s>"))

    @pytest.mark.parametrize("named", ["<eos>", "", "the"])
    def test_a_token_that_is_none(self, named: str) -> None:
        config = TokenizerConfig(spec="x", eos_token=named)
        with pytest.raises(TokenizerError, match="Its special tokens: <s>, </s>, <pad>"):
            frame_for(config, info())

    def test_a_tokenizer_without_special_tokens(self) -> None:
        bare = TokenizerInfo(kind="huggingface", fingerprint="", vocab_size=300, special_tokens={})
        with pytest.raises(TokenizerError, match=r"no special tokens at all\. Build with --no-eos"):
            frame_for(TokenizerConfig(spec="x"), bare)

    def test_a_long_list_is_cut(self) -> None:
        many = TokenizerInfo(
            kind="tiktoken", fingerprint="", vocab_size=300, special_tokens={f"<{i}>": i for i in range(50)}
        )
        with pytest.raises(TokenizerError, match=r"<19> and 30 more\."):
            frame_for(TokenizerConfig(spec="x"), many)
