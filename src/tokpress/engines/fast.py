"""A fast engine beside its reference: one wrapper for all of them.

In: a `FastEncoder`, which encodes and says of which documents it is not sure. Out: an `Engine` that has the reference
encode those, decode, and say what a token's bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tokpress.batches import Ids, Int64s, TokenBatch, string_buffers
from tokpress.engines.base import Engine, concat_tokens

_LONG = 64 * 1024  # bytes; what the reference takes for a shorter document is no matter beside a batch


class FastEncoder(Protocol):
    """What a fast engine has to bring."""

    memory_per_byte: int  # these as an Engine has them
    releases_lock: bool = True
    least_bytes: int = 0

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        """As an Engine does it. It is not asked for doubtful documents."""
        ...

    def doubtful(self, text: pa.LargeStringArray) -> Int64s:
        """Indices, ascending, of the documents that it leaves to its reference, which may encode them differently."""
        ...

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]] | None:  # noqa: ARG002 - this one cannot say
        """As an Engine does it; None if it leaves that to its reference."""
        return None


class FastEngine(Engine):
    def __init__(self, name: str, encoder: FastEncoder, reference: Engine) -> None:
        self.name = name
        self.info = reference.info
        self.memory_per_byte = encoder.memory_per_byte
        self.releases_lock = encoder.releases_lock
        self.least_bytes = encoder.least_bytes
        self.encoder = encoder
        self._reference = reference

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        doubtful = self.encoder.doubtful(text)
        if not len(doubtful):
            return self.encoder.encode(text, threads=threads)
        others = np.delete(np.arange(len(text)), doubtful)
        tokens = self.encoder.encode(text.take(pa.array(others)), threads=threads)
        parts: list[TokenBatch] = []
        done = 0
        for before, i in enumerate(doubtful.tolist()):  # one by one: the reference may take much memory for each
            parts += [tokens.part(done, i - before), self._reference.encode(text[i : i + 1])]
            done = i - before
        return concat_tokens([*parts, tokens.part(done, len(tokens))])

    def memory_for(self, text: pa.LargeStringArray) -> int:
        """Far more where a long document has to be encoded by the reference. Only long ones are looked through here: to do
        it with all of them, once more than `encode` does, would cost a few percent of encoding them."""
        need = super().memory_for(text)
        sizes = np.diff(string_buffers(text)[0])
        for i in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes > _LONG)].tolist():
            if len(self.encoder.doubtful(text[i : i + 1])):
                return need + self._reference.memory_per_byte * int(sizes[i])
        return need

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self._reference.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._reference.token_bytes(token)

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:
        found = self.encoder.token_starts(text)
        return self._reference.token_starts(text) if found is None else found
