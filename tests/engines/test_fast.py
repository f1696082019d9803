"""The one wrapper of fast engines: what they are not sure of is the reference's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokpress.batches import Int64s, TokenBatch, large_strings
from tokpress.engines.fast import FastEncoder, FastEngine

from . import samples


class Upside(FastEncoder):
    """Wrong about every document; unsure of those with a question mark."""

    memory_per_byte = 2
    least_bytes = 3
    releases_lock = False

    def __init__(self) -> None:
        self.looked_at: list[int] = []  # documents, at each look

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        assert not any("?" in document for document in text.to_pylist())  # it is not asked for those
        tokens = samples.reference("bytes").encode(text)
        return TokenBatch(tokens.ids ^ np.uint32(1), tokens.ends)

    def doubtful(self, text: pa.LargeStringArray) -> Int64s:
        self.looked_at.append(len(text))
        return np.flatnonzero(["?" in document for document in text.to_pylist()])


@pytest.fixture
def engine() -> FastEngine:
    return FastEngine("upside", Upside(), samples.reference("bytes"))


def upside(text: str) -> list[int]:
    return [byte ^ 1 for byte in text.encode()]


@pytest.mark.parametrize(
    "documents",
    [[], [""], ["a"], ["a?"], ["a", "b?", "c"], ["?", "a", "?", "b"], ["?", "a", "", "?", "??"], ["a", "b", "?"]],
)
def test_doubtful_documents_are_encoded_by_the_reference(engine: FastEngine, documents: list[str]) -> None:
    tokens = engine.encode(large_strings(documents))
    expected = [list(text.encode()) if "?" in text else upside(text) for text in documents]
    assert [tokens.doc(i).tolist() for i in range(len(tokens))] == expected


def test_in_a_slice(engine: FastEngine) -> None:
    tokens = engine.encode(large_strings(["x", "a?", "b", "y"])[1:3])
    assert [tokens.doc(i).tolist() for i in range(2)] == [list(b"a?"), upside("b")]


def test_what_it_is_is_what_the_encoder_and_the_reference_are(engine: FastEngine) -> None:
    assert (engine.name, engine.memory_per_byte, engine.releases_lock) == ("upside", 2, False)
    assert engine.least_bytes == 3  # text of less is the reference's, where a training loop asks
    assert engine.info == samples.reference("bytes").info
    assert engine.decode([104, 105]) == "hi"
    assert engine.token_bytes(256) == samples.reference("bytes").token_bytes(256)


class TestMemory:
    def test_is_the_reference_s_for_the_longest_doubtful_document(self, engine: FastEngine) -> None:
        plain, doubtful, shorter = "a" * 300_000, "?" * 200_000, "?" * 100_000
        text = large_strings([shorter, plain, doubtful, shorter])
        assert engine.memory_for(text) == 2 * 700_000 + samples.reference("bytes").memory_per_byte * 200_000

    def test_short_documents_are_not_looked_at_for_it(self, engine: FastEngine) -> None:
        encoder = engine.encoder
        assert isinstance(encoder, Upside)
        assert engine.memory_for(large_strings(["?" * 1000] * 100)) == 2 * 100_000
        assert encoder.looked_at == []

    def test_nothing_is_remembered(self, engine: FastEngine) -> None:
        """Two arrays that are the same object to a cache by identity: one was freed."""
        assert engine.memory_for(large_strings(["?" * 100_000])) > 200_000
        assert engine.memory_for(large_strings(["a" * 100_000])) == 200_000
