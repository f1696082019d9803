"""`bytes`: every byte is a token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.bytes import END_OF_TEXT
from tokpress.engines.load import load_files, reference_engine
from tokpress.records import SpecialTokenPolicy

from . import samples
from .fuzz import texts, unhurried


def test_needs_no_file() -> None:
    files = load_files(TokenizerConfig(spec="bytes"))
    assert files.files == {}
    info = reference_engine(files, "text").info
    assert (info.vocab_size, info.special_tokens, info.eos_token, info.bos_token) == (
        257,
        {END_OF_TEXT: 256},
        END_OF_TEXT,
        None,
    )


@unhurried
@given(texts())
def test_ids_are_the_bytes(text: str) -> None:
    tokens = samples.reference("bytes").encode(large_strings([text, text]))
    assert tokens.ids.tobytes() == np.frombuffer(2 * text.encode(), np.uint8).astype(np.uint32).tobytes()
    assert tokens.ends.tolist() == [len(text.encode()), 2 * len(text.encode())]


@pytest.mark.parametrize(
    ("policy", "ids"), [("text", [*b"a<|endoftext|>b"]), ("parse", [97, 256, 98])], ids=["text", "parse"]
)
def test_the_end_in_a_text(policy: SpecialTokenPolicy, ids: list[int]) -> None:
    assert samples.reference("bytes", policy).encode(large_strings(["a<|endoftext|>b"])).ids.tolist() == ids


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert samples.reference("bytes").decode([0xFF, 97, 256]) == "\ufffda<|endoftext|>"
