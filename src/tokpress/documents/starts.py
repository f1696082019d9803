"""Where tokens start in their text, in bytes.

In: text and its ids. Out: the byte at which each token starts. The bytes of the vocabulary's tokens, end to end, are
compared with those of the text: where they are the same, and that is every document of a byte-level tokenizer, the sum of
their lengths says it, for a whole batch at once. The others (a normaliser, a space put before the text) are encoded once
more by the engine, or its reference, which says where each token comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s, TokenBatch, string_buffers
from tokpress.errors import ParityError
from tokpress.records import TokenizerInfo


class Speller(Protocol):
    """What is asked of an engine here: see `engines.base.Engine`."""

    name: str
    info: TokenizerInfo

    def token_bytes(self, token: int) -> bytes: ...

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]: ...


class TokenStarts:
    """Made once for an engine: the whole vocabulary is looked up."""

    def __init__(self, engine: Speller) -> None:
        self._engine = engine
        tokens = [engine.token_bytes(token) for token in range(engine.info.vocab_size)]
        self._vocabulary = pa.array(tokens, pa.large_binary())

    def find(self, text: pa.LargeStringArray, tokens: TokenBatch) -> Int64s:
        """Of each token, in the bytes of these documents end to end; ascending."""
        offsets, data = string_buffers(text)
        bounds, spelled = string_buffers(self._vocabulary.take(pa.array(tokens.ids)))  # from 0 on: it is a new array
        ends = bounds[tokens.ends]  # of each document, in the bytes of its tokens
        text_ends = offsets[1:] - offsets[0]
        if np.array_equal(ends, text_ends) and np.array_equal(spelled[: bounds[-1]], data[offsets[0] : offsets[-1]]):
            return bounds[:-1]
        starts: Int64s = bounds[:-1].copy()
        others: list[int] = []  # documents that are spelled otherwise
        begin = text_begin = first = 0
        for i in range(len(text)):
            end, text_end, last = int(ends[i]), int(text_ends[i]), int(tokens.ends[i])
            if np.array_equal(spelled[begin:end], data[offsets[i] : offsets[i + 1]]):
                starts[first:last] += text_begin - begin
            else:
                others.append(i)
            begin, text_begin, first = end, text_end, last
        if others:
            for i, found in zip(others, self._engine.token_starts(text.take(pa.array(others))), strict=True):
                first, last = (int(tokens.ends[i - 1]) if i else 0), int(tokens.ends[i])
                starts[first:last] = (text_ends[i - 1] if i else 0) + self._checked(found, last - first, text[i])
        return starts

    def _checked(self, starts: Sequence[int], count: int, document: pa.LargeStringScalar) -> Int64s:
        if len(starts) != count:
            shown = document.as_py()[:200]
            raise ParityError(
                f"{self._engine.name} and its reference make {count} and {len(starts)} tokens of {shown!r}: "
                "no mask can be made of it. Build with the reference: --engine huggingface, sentencepiece or tiktoken"
            )
        return np.maximum.accumulate(np.asarray(starts, np.int64))  # a normaliser may move marks
