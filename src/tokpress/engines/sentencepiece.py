"""SentencePiece `.model` files (unigram and BPE), encoded by Google's own library with the model's own normaliser.

The library takes user-defined symbols in text as tokens and control symbols as plain text, always; that is the policy
"text". With "parse", control symbols are found here and what stands between them is encoded piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sentencepiece

from tokpress.batches import Ids, TokenBatch
from tokpress.engines.base import (
    StringEngine,
    byte_starts,
    from_arrays,
    from_lists,
    known_ids,
    literal_splitter,
    parse_literals,
)
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles, TokenizerInfo

_SPACE = "\u2581"  # how a piece writes a space
_SINCE_0_2_2 = hasattr(sentencepiece, "ThreadPool")  # before, a call holds the interpreter's lock to its end
_FEW = 64  # documents: then a call for each is the faster way, as a call for a batch starts a thread, if only one


class SentencePieceEngine(StringEngine):
    name = "sentencepiece"
    version: str = sentencepiece.__version__
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

    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch:
        if self._control is not None:
            return from_lists(parse_literals(self._encode, documents, self._control))
        if not _SINCE_0_2_2:
            return from_lists(self._encode(documents, threads))
        if threads == 1 and len(documents) < _FEW:
            return from_arrays([self._model.encode(document, return_type="numpy") for document in documents])
        return from_arrays(self._model.encode(documents, num_threads=threads, return_type="numpy"))

    def _encode(self, documents: list[str], threads: int = 1) -> list[list[int]]:
        ids: list[list[int]] = self._model.encode(documents, num_threads=threads) if documents else []
        return ids

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:
        control = self._control or {}
        split = literal_splitter(control)
        found: list[Sequence[int]] = []
        for document in text.to_pylist():
            starts: list[int] = []
            at = 0
            for piece in split(document):
                offsets = (
                    [(0, 0)] if piece in control else self._model.encode(piece, return_type="offset_mapping")["offsets"]
                )
                starts += [at + start for start, _ in offsets]
                at += len(piece)
            found.append(byte_starts(document, starts))
        return found

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
