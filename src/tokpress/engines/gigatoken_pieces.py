"""gigatoken for SentencePiece BPE models with byte fallback, about seven times as fast as the library.

In: a `.model`. Out: a `FastEncoder` with the library's ids. Its pieces become merges (see `bpe_pieces`). Text is normalised

- by gigatoken, where all there is to it is a prefix and U+2581 for a space: in Mistral's models, and in those that
  `tokpress train-tokenizer` makes;
- by the library itself, where characters are replaced, spaces removed, or user-defined symbols hold spaces.

Symbols in text are found by gigatoken, too: control symbols that are to be parsed, each of which begins a new text with a
prefix of its own, or user-defined ones, which do not. It cannot do both, so documents with the others are doubtful.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sentencepiece

from tokpress.batches import Int64s, TokenBatch, large_strings, string_buffers, text_bytes
from tokpress.engines.base import concat_tokens
from tokpress.engines.bpe_pieces import SPACE, as_tokenizer_json
from tokpress.engines.gigatoken import UNSUPPORTED, Gigatoken
from tokpress.engines.model_proto import CONTROL, USER_DEFINED, parse_model
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

Normalize = Callable[[list[str]], list[str]]
_MOST_BYTES = 2**31  # in a call: gigatoken counts tokens in 32 bits, and the library bytes
_UNBROKEN = 16 * 1024**2  # bytes without a space, for which gigatoken takes up to twice as long as the library
_PREFIX = {"type": "Prepend", "prepend": SPACE}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


class GigatokenPieces(Gigatoken):
    memory_per_byte = 48
    least_bytes = 16 * 1024  # each call makes a new cache, which takes two milliseconds

    def __init__(
        self, tokenizer_json: bytes, kind: str, *, normalize: Normalize | None = None, doubtful: Sequence[str] = ()
    ) -> None:
        super().__init__(tokenizer_json, kind)
        self._normalize = normalize
        self._doubtful = "|".join("".join(rf"\x{{{ord(char):X}}}" for char in literal) for literal in doubtful)

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        if len(text) > 1 and text_bytes(text) > _MOST_BYTES:
            half = len(text) // 2
            return concat_tokens([self.encode(part, threads=threads) for part in (text[:half], text[half:])])
        if self._normalize is not None:
            text = large_strings(self._normalize(text.to_pylist()))
        return super().encode(text, threads=threads)

    def doubtful(self, text: pa.LargeStringArray) -> Int64s:
        starts, data = string_buffers(text)
        found = np.diff(starts) > _MOST_BYTES
        for i in np.flatnonzero(np.diff(starts) > _UNBROKEN).tolist():
            stretches = range(int(starts[i]), int(starts[i + 1]) - _UNBROKEN + 1, _UNBROKEN)
            found[i] |= any(not (data[begin : begin + _UNBROKEN] == ord(" ")).any() for begin in stretches)
        if self._doubtful:
            found |= np.asarray(pc.match_substring_regex(text, self._doubtful))
        return np.flatnonzero(found)


def load_pieces(files: TokenizerFiles, policy: SpecialTokenPolicy) -> GigatokenPieces:
    (data, *_) = files.files.values()
    try:
        model = parse_model(data)
        user, control = model.of_type(USER_DEFINED), model.of_type(CONTROL) if policy == "parse" else {}
        if not model.keeps_text or any(SPACE in symbol for symbol in user):
            library = sentencepiece.SentencePieceProcessor(model_proto=data)
            converted, normalize, doubtful = as_tokenizer_json(model, user), library.normalize, control
        else:
            steps = [_PREFIX, _SPACES] if model.add_dummy_prefix else [_SPACES]
            found, doubtful = (control, user) if control or model.add_dummy_prefix else (user, {})
            converted = as_tokenizer_json(model, found, normalizer={"type": "Sequence", "normalizers": steps})
            normalize = None
    except TokenizerError as error:
        raise TokenizerError(f"{UNSUPPORTED}: {error}") from error
    return GigatokenPieces(converted, files.kind, normalize=normalize, doubtful=[*doubtful])
