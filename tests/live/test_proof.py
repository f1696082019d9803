"""The fast engine on probation: the reference's ids until it is proved, and for ever if it is not."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from engines import samples

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.live.proof import ProvedEngine, load_engine

EQUAL = large_strings(["some text", "", "more of it"])
DIFFERENT = large_strings(["plain", f"a {samples.END} b"])  # the two engines below differ on the literal


@pytest.fixture
def engine() -> ProvedEngine:
    """Two real engines that are equal on most texts, not on all."""
    return ProvedEngine(samples.reference("bytes", "parse"), samples.reference("bytes", "text"), proof_bytes=30)


def ids(engine: Engine, text: pa.LargeStringArray) -> list[int]:
    encoded: list[int] = engine.encode(text).ids.tolist()
    return encoded


def test_a_difference_leaves_the_reference(engine: ProvedEngine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert ids(engine, DIFFERENT) == list(f"plaina {samples.END} b".encode())
    assert "differs from bytes and is not used" in caplog.text
    for _ in range(5):
        assert ids(engine, DIFFERENT) == list(f"plaina {samples.END} b".encode())


def test_after_enough_text_the_fast_engine_is_trusted(engine: ProvedEngine) -> None:
    for _ in range(2):
        assert ids(engine, EQUAL) == list(b"some textmore of it")
    assert ids(engine, DIFFERENT) == [*b"plaina ", 256, *b" b"]  # so this is the fast one


def test_an_engine_that_fails_where_the_reference_does_not_is_never_used(caplog: pytest.LogCaptureFixture) -> None:
    """A million spaces make tiktoken panic, and gigatoken not."""
    spaces = large_strings([" " * 1_000_000 + "x"])
    engine = ProvedEngine(samples.reference("gpt2-ranks"), samples.fast("gpt2-ranks"), proof_bytes=10)
    for _ in range(2):
        assert engine.decode(engine.encode(spaces).ids) == spaces[0].as_py()
    assert "tiktoken differs from gigatoken and is not used: tiktoken cannot encode" in caplog.text
    assert engine.name == "gigatoken"


def test_the_name_is_that_of_the_ids() -> None:
    proved = ProvedEngine(samples.fast("cl100k"), samples.reference("cl100k"), proof_bytes=10)
    assert proved.name == "huggingface"
    proved.encode(EQUAL)
    assert proved.name == "gigatoken"
    assert proved.decode(proved.encode(large_strings(["again"])).ids) == "again"
    assert proved.token_bytes(proved.encode(large_strings(["a"])).ids[0]) == b"a"


def test_which_engine_is_loaded() -> None:
    def loaded(name: str, **options: object) -> type:
        config = TokenizerConfig(spec="", **options)  # type: ignore[arg-type]
        return type(load_engine(samples.sample(name).files, config))

    assert loaded("cl100k") is ProvedEngine
    assert loaded("cl100k", engine="huggingface").__name__ == "HuggingFaceEngine"
    assert loaded("wordpiece").__name__ == "HuggingFaceEngine"
    assert loaded("mistral-v7-real") is ProvedEngine
    assert loaded("sp-unigram-fallback-prefix-identity", engine="sentencepiece").__name__ == "SentencePieceEngine"


def test_what_is_not_worth_a_call_stays_with_the_reference() -> None:
    """Small batches, of an engine that takes long for a call. (These two differ on the literal.)"""
    fast = samples.reference("bytes", "parse")
    proved = ProvedEngine(fast, samples.reference("bytes", "text"), proof_bytes=10)
    proved.encode(EQUAL)
    fast.least_bytes = 30
    assert ids(proved, DIFFERENT) == list(f"plaina {samples.END} b".encode())
    assert ids(proved, large_strings(["plain" * 10, samples.END])) == [*b"plain" * 10, 256]
