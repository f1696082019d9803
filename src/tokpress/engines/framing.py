"""From an engine's ids to a document as it is stored: BOS, EOS, range check, narrow dtype.

In: `TokenBatch` with u32 ids. Out: `TokenBatch` in the store's dtype. All of it vectorised: putting a token after each of
a million documents is one join of binary arrays, four times as fast as NumPy's own ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import Ids, TokenBatch
from tokpress.config import TokenizerConfig
from tokpress.errors import IdRangeError, TokenizerError
from tokpress.records import TokenizerInfo


@dataclass(frozen=True, slots=True)
class Frame:
    """What is put around each document, and the dtype that holds any id of the vocabulary."""

    bos_id: int | None
    eos_id: int | None
    vocab_size: int

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        return np.dtype("<u2") if self.vocab_size <= 2**16 else np.dtype("<u4")

    def apply(self, tokens: TokenBatch) -> TokenBatch:
        """As the store has it."""
        if len(tokens.ids) and int(tokens.ids.max()) >= self.vocab_size:
            raise IdRangeError(
                f"the tokenizer returned id {int(tokens.ids.max())}, outside its vocabulary of {self.vocab_size} tokens. "
                "Nothing was written. Its files are inconsistent: get them again from where they come from."
            )
        return self.surround(TokenBatch(tokens.ids.astype(self.dtype, copy=False), tokens.ends))

    def surround(self, tokens: TokenBatch) -> TokenBatch:
        """Puts BOS and EOS around each document, in whatever dtype the ids have."""
        if not len(tokens) or (self.bos_id is None and self.eos_id is None):
            return tokens
        ids: Ids = np.ascontiguousarray(tokens.ids)
        width = ids.itemsize
        bounds = np.concatenate([[0], tokens.ends]) * width
        parts = [
            pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(tokens), [None, pa.py_buffer(bounds), pa.py_buffer(ids)]
            )
        ]
        if self.bos_id is not None:
            parts.insert(0, _scalar(self.bos_id, ids.dtype))
        if self.eos_id is not None:
            parts.append(_scalar(self.eos_id, ids.dtype))
        _, offsets, data = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())).buffers()
        ends = np.frombuffer(offsets, np.int64)[1 : len(tokens) + 1] // width
        return TokenBatch(np.frombuffer(data, ids.dtype), ends)


def _scalar(token: int, dtype: np.dtype[Any]) -> pa.Scalar:
    return pa.scalar(np.array(token, dtype).tobytes(), pa.large_binary())


def frame_for(config: TokenizerConfig, info: TokenizerInfo) -> Frame:
    """Finds the ids of BOS and EOS, or says which flag is missing."""
    return Frame(
        bos_id=_special_id("bos", config.bos_token or info.bos_token, info) if config.bos else None,
        eos_id=_special_id("eos", config.eos_token or info.eos_token, info) if config.eos else None,
        vocab_size=info.vocab_size,
    )


def _special_id(which: str, token: str | None, info: TokenizerInfo) -> int:
    if token in info.special_tokens:
        return info.special_tokens[token]
    names = list(info.special_tokens)
    known = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    what = f"{token!r} is no special token of it" if token else f"it names no {which.upper()} token"
    if not names:
        raise TokenizerError(f"{what}, and it has no special tokens at all. Build with --no-{which}.")
    raise TokenizerError(
        f"{what}. Its special tokens: {known}. Choose one with --{which}-token '{names[0]}', or build with --no-{which}."
    )
