"""Bytes as tokens: id = byte, and one special token to end documents with. Needs no file and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokpress.batches import Ids, TokenBatch, string_buffers
from tokpress.config import SpecialTokenPolicy
from tokpress.engines.base import Engine, TokenizerFiles, from_lists, known_ids, parse_literals
from tokpress.records import TokenizerInfo

END_OF_TEXT = "<|endoftext|>"
_SPECIAL_TOKENS = {END_OF_TEXT: 256}


class BytesEngine(Engine):
    name = "bytes"
    memory_per_byte = 5

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        self._parse = policy == "parse"
        self.info = TokenizerInfo(
            kind=files.kind,
            fingerprint=files.fingerprint,
            vocab_size=257,
            special_tokens=_SPECIAL_TOKENS,
            eos_token=END_OF_TEXT,
        )

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:  # noqa: ARG002 - a copy is all it is
        if self._parse:
            encode = lambda documents: [document.encode() for document in documents]  # noqa: E731
            return from_lists(parse_literals(encode, text.to_pylist(), _SPECIAL_TOKENS))
        starts, data = string_buffers(text)
        return TokenBatch(data[starts[0] : starts[-1]].astype(np.uint32), starts[1:] - starts[0])

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, known_ids(ids, self.info.vocab_size))).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else END_OF_TEXT.encode()
