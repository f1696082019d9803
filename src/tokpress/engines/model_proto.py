"""A SentencePiece `.model`, read from its bytes: the types of pieces and how text is normalised, which the library keeps.

In: the bytes of a protobuf message. Out: a `ModelProto`. The wire format is three rules, so no protobuf library is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tokpress.errors import TokenizerError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}

_Fields = dict[int, int | bytes]  # by number; of a field that is there more than once the last


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProto:
    pieces: list[str]
    scores: list[float]
    types: list[int]
    model_type: str
    byte_fallback: bool
    charsmap: bool  # characters are replaced before text is encoded
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    whitespace_is_suffix: bool

    def of_type(self, kind: int) -> dict[str, int]:
        return {piece: i for i, (piece, of) in enumerate(zip(self.pieces, self.types, strict=True)) if of == kind}

    @property
    def keeps_text(self) -> bool:
        """A space becomes U+2581, and nothing else is changed but for the prefix."""
        return self.escape_whitespaces and not (
            self.charsmap or self.remove_extra_whitespaces or self.whitespace_is_suffix
        )


def parse_model(data: bytes) -> ModelProto:
    pieces: list[_Fields] = []
    trainer: _Fields = {}
    normalizer: _Fields = {}
    try:
        for number, value in _fields(data):
            if number == 1:
                pieces.append(dict(_fields(_bytes(value))))
            elif number in (2, 3):
                (trainer if number == 2 else normalizer).update(_fields(_bytes(value)))
        return ModelProto(
            pieces=[_bytes(piece.get(1, b"")).decode() for piece in pieces],
            scores=[struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0] for piece in pieces],
            types=[int(piece.get(3, NORMAL)) for piece in pieces],
            model_type=MODEL_TYPES.get(int(trainer.get(3, 1)), "unknown"),
            byte_fallback=bool(trainer.get(35, 0)),
            charsmap=bool(normalizer.get(2, b"")),
            add_dummy_prefix=bool(normalizer.get(3, 1)),
            remove_extra_whitespaces=bool(normalizer.get(4, 1)),
            escape_whitespaces=bool(normalizer.get(5, 1)),
            whitespace_is_suffix=bool(trainer.get(24, 0)),
        )
    except (ValueError, IndexError, struct.error) as error:  # UnicodeDecodeError is a ValueError
        raise TokenizerError(f"the SentencePiece model cannot be read: {error}") from error


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: a varint as a number, all else as bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case wire:
                raise ValueError(f"wire type {wire}")
        if at + size > end:
            raise ValueError("it ends early")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where bytes should be")  # noqa: TRY004 - of a file, not of a call
    return value
