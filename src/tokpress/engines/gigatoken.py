"""The fast engine: gigatoken's SIMD BPE, 30 to 60 times as fast as the reference, used only where it is proved equal.

It takes Arrow memory without a copy and gives flat ids and offsets back. What it does not support it refuses at load.
The reference does what it cannot do equally: decoding, and documents with characters that it sees differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import Ids, Int64s, TokenBatch, string_buffers
from tokpress.config import SpecialTokenPolicy
from tokpress.engines.base import Engine, TokenizerFiles, concat_tokens, no_panic
from tokpress.engines.unsettled import unsettled_documents
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerInfo


class GigatokenEngine(Engine):
    name = "gigatoken"
    memory_per_byte = 4

    def __init__(
        self, files: TokenizerFiles, policy: SpecialTokenPolicy, info: TokenizerInfo, reference: Engine | None = None
    ) -> None:
        self.info = info
        if reference is not None:  # else it is loaded when it is needed
            self._reference = reference
        self._files = files
        self._policy = policy
        self._tokenizer = _load(_tokenizer_json(files, keep_special=policy == "parse"))
        self._looked_at: tuple[pa.LargeStringArray, Int64s] | None = None
        import awkward  # takes a third of a second; gigatoken's own input and output type

        self._ak = awkward

    @cached_property
    def _reference(self) -> Engine:
        from tokpress.engines.load import reference_engine

        return reference_engine(self._files, self._policy)

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        unsettled = self._unsettled_in(text)
        self._looked_at = None
        tokens = self._encode(text, threads)
        parts: list[TokenBatch] = []
        done = 0
        for i in unsettled.tolist():
            parts += [tokens.part(done, i), self._reference.encode(text[i : i + 1])]
            done = i + 1
        return concat_tokens([*parts, tokens.part(done, len(tokens))]) if parts else tokens

    def _encode(self, text: pa.LargeStringArray, threads: int) -> TokenBatch:
        offsets, data = string_buffers(text)
        contents = self._ak.contents
        characters = contents.NumpyArray(data, parameters={"__array__": "char"})
        strings = contents.ListOffsetArray(
            self._ak.index.Index64(offsets), characters, parameters={"__array__": "string"}
        )
        with no_panic(f"gigatoken cannot encode this text; build with --engine {self._files.kind}"):
            encoded = self._tokenizer.encode_batch(self._ak.Array(strings), parallel=threads > 1).layout
        starts = np.asarray(encoded.offsets.data)
        ids = np.asarray(encoded.content.data)[starts[0] : starts[-1]]
        return TokenBatch(ids, starts[1:] - starts[0])

    def memory_for(self, text: pa.LargeStringArray) -> int:
        """Far more where a long document has to be encoded by the reference."""
        sizes = np.diff(string_buffers(text)[0])[self._unsettled_in(text)]
        return super().memory_for(text) + (self._reference.memory_per_byte * int(sizes.max()) if len(sizes) else 0)

    def _unsettled_in(self, text: pa.LargeStringArray) -> Int64s:
        """Remembered from `memory_for` until `encode`: to look through a batch costs a few percent of encoding it."""
        looked_at = self._looked_at  # read and written as one: threads may encode at the same time
        if looked_at is None or looked_at[0] is not text:
            looked_at = self._looked_at = text, unsettled_documents(text)
        return looked_at[1]

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self._reference.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._reference.token_bytes(token)

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:
        return self._reference.token_starts(text)


def _tokenizer_json(files: TokenizerFiles, *, keep_special: bool) -> bytes:
    """The tokenizer in the form gigatoken loads. Without its special tokens their literals are ordinary text."""
    if files.kind == "tiktoken":
        from tokpress.engines.tiktoken import as_tokenizer_json

        data = as_tokenizer_json(files)
    else:
        from tokpress.engines.huggingface import TOKENIZER_JSON

        data = files.files[TOKENIZER_JSON]
    if keep_special:
        return data
    sections = msgspec.json.decode(data, type=dict[str, msgspec.Raw])  # the rest, megabytes of it, is left unparsed
    added = msgspec.json.decode(sections.get("added_tokens", b"null"), type=list[dict[str, Any]] | None) or []
    plain = [token for token in added if not token.get("special")]
    return msgspec.json.encode(sections | {"added_tokens": msgspec.Raw(msgspec.json.encode(plain))})


def _load(data: bytes) -> Any:
    import gigatoken

    unsupported = "gigatoken does not support this tokenizer"
    with no_panic(unsupported):
        try:
            return gigatoken.Tokenizer.from_json(data)
        except Exception as error:
            reason = str(error).partition("\n")[0]  # what follows is a place in its source
            raise TokenizerError(f"{unsupported}: {reason}") from error
