"""Bytes -> other bytes, the same for the same seed: what a fuzzer does that has no look at the code it runs."""

from __future__ import annotations

import random

_NASTY = (
    b"-1",
    b"1e999",
    b"9" * 40,
    b"null",
    b"[" * 200,
    b"{",
    b"\0",
    b"\xff" * 8,
    b"\xed\xa0\x80",
    b'""',
    b"{{",
    b"%}",
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        length = rng.choice([0, 1, 2, 4, 8, 30])
        match rng.randrange(6):
            case 0 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + length :]
            case 2:
                data = data[:at] + rng.choice(_NASTY) + data[at + length :]
            case 3:
                data = data[:at] + data[at : at + length] * rng.randrange(2, 50) + data[at:]
            case 4:
                data = data[:at] + rng.randbytes(length) + data[at + length :]
            case _:
                data = data[:at]
    return data
