"""The engine for text that comes as it comes.

In: a tokenizer. Out: its reference or, where there is a fast engine, one that proves itself on the caller's own texts: the
first of them are encoded by both and the reference's ids are given out. At the first difference the reference stays.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from tokpress.batches import Ids, TokenBatch, text_bytes
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.choice import choose_engine
from tokpress.engines.load import reference_engine
from tokpress.engines.parity import compare
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerFiles

_PROOF_BYTES = 512 * 1024  # as much as a build proves with
_log = logging.getLogger(__name__)


def load_engine(files: TokenizerFiles, config: TokenizerConfig) -> Engine:
    """What was asked for; the fast engine only if it passes the strings on which tokenizers are known to differ."""
    reference = reference_engine(files, config.special_tokens)
    engine, _ = choose_engine(files, config, reference, [])
    return engine if engine is reference else ProvedEngine(engine, reference)


class ProvedEngine(Engine):
    """A fast engine on probation. May be called from several threads: a difference is never forgotten."""

    def __init__(self, fast: Engine, reference: Engine, proof_bytes: int = _PROOF_BYTES) -> None:
        self.info = reference.info
        self.memory_per_byte = fast.memory_per_byte + reference.memory_per_byte
        self.fast = fast
        self.reference = reference
        self._left = proof_bytes  # to be compared
        self._differs = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """Of the engine whose ids are given out."""
        return self.reference.name if self._differs or self._left > 0 else self.fast.name

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        proving = not self._differs and self._left > 0
        if not (self._differs or proving) and text_bytes(text) >= self.fast.least_bytes:
            return self.fast.encode(text, threads=threads)
        tokens = self.reference.encode(text, threads=threads)
        if proving:
            self._compare(text, tokens)
        return tokens

    def _compare(self, text: pa.LargeStringArray, tokens: TokenBatch) -> None:
        try:
            difference: object = compare(self.fast.encode(text), tokens, text)
        except TokenizerError as error:
            difference = error
        if difference is not None:
            self._differs = True
            _log.warning("%s differs from %s and is not used: %s", self.fast.name, self.reference.name, difference)
        self._left -= text_bytes(text)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self.reference.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self.reference.token_bytes(token)
