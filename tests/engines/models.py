"""SentencePiece models written by hand, piece by piece: small ones, random ones, and some that no trainer would make."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from tokpress.engines.model_proto import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, _fields
from tokpress.records import TokenizerFiles

Piece = tuple[str, float, int]  # piece, score, type
SPACE = "\u2581"
RESERVED: list[Piece] = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTES: list[Piece] = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]


def write_model(
    pieces: Sequence[Piece],
    *,
    model_type: int = 2,
    byte_fallback: bool = True,
    suffix: bool = False,
    prefix: bool = True,
    remove_spaces: bool = False,
    escape: bool = True,
) -> bytes:
    listed = (_text(1, piece) + _field(2, 5, struct.pack("<f", score)) + _number(3, of) for piece, score, of in pieces)
    trainer = _number(3, model_type) + _number(24, suffix) + _number(35, byte_fallback)
    normalizer = _text(1, "identity") + _number(3, prefix) + _number(4, remove_spaces) + _number(5, escape)
    return b"".join(_message(1, piece) for piece in listed) + _message(2, trainer) + _message(3, normalizer)


def charsmap_of(data: bytes) -> bytes:
    """The character map of a model, compiled; empty if it has none."""
    found: int | bytes = b""
    for number, section in _fields(data):
        if number == 3 and isinstance(section, bytes):
            found = dict(_fields(section)).get(2, b"")
    assert isinstance(found, bytes)
    return found


def model_files(pieces: Sequence[Piece], **options: Any) -> TokenizerFiles:
    """With bytes and the usual symbols."""
    data = write_model([*RESERVED, *BYTES, *pieces], **options)
    return TokenizerFiles("sentencepiece", {"tokenizer.model": data})


def normal(*pieces: str) -> list[Piece]:
    """Each with a score below that of the one before."""
    return [(piece, -float(i), NORMAL) for i, piece in enumerate(pieces)]


def characters(alphabet: str) -> list[Piece]:
    return [(char, -10_000.0 - i, NORMAL) for i, char in enumerate(alphabet)]


def random_model(rng: random.Random) -> tuple[str, list[Piece]]:
    """An alphabet, and pieces over it in any order of scores: most of them could not come from training."""
    alphabet = rng.choice(["ab", "abc", "ab▁", "a▁", "abcd▁", "xé▁", "a.▁", "ab.,▁é漢", 'a"):;!?▁', "a🙂▁\n"])
    pieces = {"".join(rng.choices(alphabet, k=rng.randrange(2, 7))) for _ in range(rng.choice([5, 20, 40, 150]))}
    for piece in sorted(pieces) if rng.random() < 0.7 else []:  # so that more of them can be made of others
        at = rng.randrange(1, len(piece))
        parts = [piece[:at], piece[at:]] + [piece[:i] for i in range(2, len(piece)) if rng.random() < 0.6]
        pieces |= {part for part in parts if len(part) > 1}
    ordered = sorted(pieces)
    rng.shuffle(ordered)
    found = normal(*ordered)
    if rng.random() < 0.3:
        found = _with_runs(found, rng.choice(alphabet), rng)
    known = {piece for piece, _, _ in found} | set(alphabet)
    symbols = {"".join(rng.choices(alphabet, k=rng.randrange(1, 4))) for _ in range(rng.choice([0, 0, 3]))} - known
    names = {"<ab>", rng.choice(["aab", "ba", "<a>"])} - known - symbols
    return alphabet, [
        *((name, 0.0, CONTROL) for name in sorted(names)),
        *((symbol, 0.0, USER_DEFINED) for symbol in sorted(symbols)),
        *found,
        *characters(alphabet),
    ]


def _with_runs(found: list[Piece], char: str, rng: random.Random) -> list[Piece]:
    """Runs of a character that have all the same score, as in Llama's model; some lengths are missing."""
    lengths = set(range(2, rng.choice([2, 3, 4, 5, 8, 16, 17]) + 1))
    lengths -= set(rng.choices(range(2, 17), k=rng.choice([0, 0, 1, 2, 4])))
    score = rng.choice([-1e9, 0.5, -len(found) // 2 - 0.5])
    others = [piece for piece in found if char * 2 not in piece[0]]
    return others + [(char * length, score, NORMAL) for length in sorted(lengths)]


def random_texts(rng: random.Random, alphabet: str, literals: Sequence[str]) -> list[str]:
    plain = alphabet.replace(SPACE, " ")
    strange = [*plain, *alphabet, "z", *literals]
    texts = ["".join(rng.choices(plain, k=rng.randrange(14))) for _ in range(60)]
    texts += ["".join(rng.choices(strange, k=rng.randrange(40))) for _ in range(30)]
    texts += [rng.choice(plain) * rng.randrange(1, 80) for _ in range(15)]
    texts += [" " * rng.randrange(4) + "".join(rng.choices([*plain, "  "], k=20)) + " " * rng.randrange(3)]
    return [*texts, "".join(rng.choices(plain, k=600))]


def _message(number: int, data: bytes) -> bytes:
    return _field(number, 2, _varint(len(data)) + data)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _number(number: int, value: int) -> bytes:
    return _field(number, 0, _varint(value))


def _field(number: int, wire: int, data: bytes) -> bytes:
    return _varint(number << 3 | wire) + data


def _varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])
