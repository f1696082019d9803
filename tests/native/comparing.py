"""The native encoder beside the library: every id, and every token start."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import sentencepiece
import tokpress_native

from tokpress.batches import large_strings, string_buffers
from tokpress.engines.sentencepiece import SentencePieceEngine
from tokpress.records import TokenizerFiles

WHOLE = bool(os.environ.get("TOKPRESS_NATIVE_WHOLE"))  # `make native-exact`; else a seeded part of it


def assert_equal(model: bytes, texts: Sequence[str], *, starts: bool = True) -> None:
    """With and without AVX2, cold and warm, on one thread and on two."""
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    documents = list(texts)
    expected = [library.encode(text, return_type="numpy") for text in documents]
    for simd in (True, False):
        tokenizer = tokpress_native.Tokenizer(model, simd=simd)
        for threads in (1, 2):  # the second time the cache is warm
            ids, ends = tokenizer.encode(documents, threads=threads)
            _require(documents, expected, np.split(ids, ends[:-1]) if len(ends) else [])
    if starts:
        _, ends, found = tokenizer.encode(documents, starts=True)
        engine = SentencePieceEngine(TokenizerFiles("sentencepiece", {"tokenizer.model": model}), "text")
        for text, wanted, got in zip(
            documents, engine.token_starts(large_strings(documents)), np.split(found, ends[:-1]), strict=True
        ):
            assert list(wanted) == got.tolist(), f"token starts of {text[:200]!r}"


def buffers_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    return string_buffers(large_strings(texts))


def _require(documents: list[str], expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> None:
    assert len(expected) == len(found)
    for text, wanted, got in zip(documents, expected, found, strict=True):
        if not np.array_equal(wanted, got):
            at = next(i for i in range(len(wanted) + 1) if wanted[: i + 1].tolist() != got[: i + 1].tolist())
            raise AssertionError(
                f"{text[:200]!r} differs at {at}: {got[at : at + 8].tolist()} instead of {wanted[at : at + 8].tolist()}"
            )
