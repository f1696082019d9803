"""Where tokens start in their text, in bytes.

In: text and its ids. Out: the byte at which each token starts. The bytes of the vocabulary's tokens, end to end, are
compared with those of the text: where they are the same, and that is every document of a byte-level tokenizer, the sum of
their lengths says it, for a whole batch at once. The others (a normaliser, a space put before the text) are encoded once
more by the reference, which says where each token comes from.
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
        begin = text_begin = first = 0
        for i in range(len(text)):  # one by one, but only where a document of the batch is spelled otherwise
            end, text_end, last = int(ends[i]), int(text_ends[i]), int(tokens.ends[i])
            if np.array_equal(spelled[begin:end], data[offsets[i] : offsets[i + 1]]):
                starts[first:last] += text_begin - begin
            else:
                starts[first:last] = text_begin + self._from_reference(text[i : i + 1], last - first)
            begin, text_begin, first = end, text_end, last
        return starts

    def _from_reference(self, text: pa.LargeStringArray, count: int) -> Int64s:
        [starts] = self._engine.token_starts(text)
        if len(starts) != count:
            raise ParityError(
                f"{self._engine.name} and its reference make {count} and {len(starts)} tokens of {text[0].as_py()[:200]!r}: "
                "no mask can be made of it. Build with the reference: --engine huggingface, sentencepiece or tiktoken"
            )
        return np.maximum.accumulate(np.asarray(starts, np.int64))  # a normaliser may move marks
