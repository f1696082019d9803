"""Our own encoder of SentencePiece models, BPE and unigram, used where it is proved equal to Google's library.

In: a `.model`. Out: a `FastEncoder` with the ids of `sentencepiece` 0.2.2 and later, which adds a unigram model's scores
otherwise than earlier ones. It is a distribution of its own (`native/`), as it has to be compiled: `tokpress[native]`.
Symbols that are to be parsed and token starts are its own work, too, so no document but a huge one is left to the library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s, TokenBatch, string_buffers
from tokpress.engines.fast import FastEncoder
from tokpress.engines.model_proto import CONTROL, parse_model
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

UNSUPPORTED = "the native encoder does not take this model"
_MOST_BYTES = 2**30  # in a document
_OLDEST = (0, 2, 2)  # version of the library


class Native(FastEncoder):
    memory_per_byte = 60  # 54 for eight million characters without a place to cut, 5 for others

    def __init__(self, model: bytes, literals: Sequence[tuple[str, int]]) -> None:
        import tokpress_native

        try:
            self._tokenizer = tokpress_native.Tokenizer(model, literals=list(literals))
        except ValueError as error:
            raise TokenizerError(f"{UNSUPPORTED}: {error}") from error

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        offsets, data = string_buffers(text)
        ids, ends = self._tokenizer.encode_buffers(offsets, data, threads=threads)
        return TokenBatch(ids, ends)

    def doubtful(self, text: pa.LargeStringArray) -> Int64s:
        return np.flatnonzero(np.diff(string_buffers(text)[0]) > _MOST_BYTES)

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]] | None:
        if len(self.doubtful(text)):
            return None
        offsets, data = string_buffers(text)
        _, ends, starts = self._tokenizer.encode_buffers(offsets, data, starts=True)
        return cast(list[Sequence[int]], np.split(starts, ends[:-1]))  # arrays, which are as good here


def load(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Native:
    """Raises TokenizerError, with the reason, for a model that it does not take."""
    import sentencepiece

    numbers = tuple(map(int, re.findall(r"\d+", sentencepiece.__version__)[:3]))
    if numbers < _OLDEST:
        raise TokenizerError(
            f"{UNSUPPORTED}: its ids are those of sentencepiece 0.2.2 and later, and {sentencepiece.__version__} is "
            "installed. Run: pip install -U sentencepiece"
        )
    (data, *_) = files.files.values()
    return Native(data, [*parse_model(data).of_type(CONTROL).items()] if policy == "parse" else [])
