"""SentencePiece `.model` files (unigram and BPE), encoded by Google's own library with the model's own normaliser.

The library takes user-defined symbols in text as tokens and control symbols as plain text, always; that is the policy
"text". With "parse", control symbols are found here and what stands between them is encoded piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sentencepiece

from tokpress.batches import Ids, TokenBatch, text_bytes
from tokpress.config import SpecialTokenPolicy
from tokpress.engines.base import (
    Engine,
    TokenizerFiles,
    TokenizerInfo,
    from_arrays,
    from_lists,
    known_ids,
    parse_literals,
)
from tokpress.errors import TokenizerError

_SPACE = "\u2581"  # how a piece writes a space
_SINCE_0_2_2 = hasattr(sentencepiece, "ThreadPool")  # before, a call holds the interpreter's lock to its end
_LONG_BYTES, _FEW = 1000, 8  # documents of so many bytes on average, or so few: then a call for each is the faster way


class SentencePieceEngine(Engine):
    name = "sentencepiece"
    memory_per_byte = 50
    releases_lock = _SINCE_0_2_2

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        (name, model), *_ = files.files.items()
        try:
            if not model:  # the library takes an empty file for a model yet to be loaded
                raise RuntimeError("it is empty")
            self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces: list[str] = self._model.id_to_piece(list(range(self._model.get_piece_size())))
        except (RuntimeError, UnicodeDecodeError) as error:
            raise TokenizerError(
                f"{name} is neither a SentencePiece model nor any other tokenizer known here: {error}. "
                "Get the file again from where it comes from."
            ) from error
        control = {piece: i for i, piece in enumerate(pieces) if self._model.is_control(i)}
        self._control = control if policy == "parse" else None
        bos, eos = self._model.bos_id(), self._model.eos_id()  # -1: there is none
        self.info = TokenizerInfo(
            kind=files.kind,
            fingerprint=files.fingerprint,
            vocab_size=len(pieces),
            special_tokens=control,
            bos_token=pieces[bos] if bos >= 0 else None,
            eos_token=pieces[eos] if eos >= 0 else None,
        )

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        documents = text.to_pylist()
        if self._control is not None:
            return from_lists(parse_literals(self._encode, documents, self._control))
        if _SINCE_0_2_2 and threads == 1 and (len(text) < _FEW or text_bytes(text) > _LONG_BYTES * len(text)):
            # A call for a batch starts a thread, with cold memory, even if it is to use one only.
            return from_arrays([self._model.encode(document, return_type="numpy") for document in documents])
        return from_lists(self._encode(documents, threads))

    def _encode(self, documents: list[str], threads: int = 1) -> list[list[int]]:
        ids: list[list[int]] = self._model.encode(documents, num_threads=threads) if documents else []
        return ids

    def decode(self, ids: Ids | Sequence[int]) -> str:
        """As the library does it, except that control symbols are shown by name instead of dropped."""
        shown: list[str] = []
        run: list[int] = []
        for token in known_ids(ids, self.info.vocab_size):
            if self._model.is_control(token):
                shown += [self._model.decode(run), self._model.id_to_piece(token)]
                run = []
            else:
                run.append(token)
        return "".join([*shown, self._model.decode(run)])

    def token_bytes(self, token: int) -> bytes:
        piece: str = self._model.id_to_piece(token)
        if self._model.is_byte(token):
            return bytes([int(piece[3:-1], 16)])  # written as <0x0A>
        return piece.replace(_SPACE, " ").encode()
