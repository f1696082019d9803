"""A shuffled order that is a function: position -> sample in O(1), for any number of samples, and back.

In: n and a key. Out: a bijection of 0 .. n - 1, for one number or for an array of them. A Feistel network shuffles the
2^(2h) numbers that contain 0 .. n - 1; a number that lands outside is sent through again until it is inside (at most four
times on average). The same key gives the same order on every machine and in every version: nothing comes from
`numpy.random`, whose streams may change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from tokpress.batches import Int64s
from tokpress.hashing import Words, mix

ROUNDS = 6
MAX_SAMPLES = 2**62
_LEAST_HALF_BITS = 3  # narrower networks shuffle a handful of samples unevenly


def derive_keys(*parts: str | int, count: int) -> Words:
    """Independent 64-bit keys from whatever names a purpose: ("order", seed, source, epoch)."""
    name = "\x1f".join(map(str, parts)).encode()
    return np.frombuffer(hashlib.shake_128(name).digest(8 * count), "<u8").astype(np.uint64)


class Permutation:
    """Each of 0 .. n - 1 once, in an order that the key decides."""

    def __init__(self, n: int, *key: str | int) -> None:
        if not 0 <= n <= MAX_SAMPLES:
            raise ValueError(f"a permutation of {n} samples: it must be between 0 and 2^62 of them")
        self.n = n
        self._keys = derive_keys(*key, count=ROUNDS)
        half_bits = max(((n - 1).bit_length() + 1) // 2, _LEAST_HALF_BITS)
        self._half_bits = np.uint64(half_bits)
        self._half_mask = np.uint64(2**half_bits - 1)
        self._spare_bits = np.uint64(64 - half_bits)  # the round function keeps the high bits of a word

    def samples(self, positions: Int64s) -> Int64s:
        return self._walk(positions, self._forward)

    def positions(self, samples: Int64s) -> Int64s:
        return self._walk(samples, self._backward)

    def sample(self, position: int) -> int:
        return int(self.samples(np.array([position], np.int64))[0])

    def position(self, sample: int) -> int:
        return int(self.positions(np.array([sample], np.int64))[0])

    def _walk(self, numbers: Int64s, step: Callable[[Words], Words]) -> Int64s:
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.n:
            raise IndexError(f"{int(numbers.min())} .. {int(numbers.max())} is not within 0 .. {self.n - 1}")
        words = step(numbers.astype(np.uint64))
        outside = np.flatnonzero(words >= np.uint64(self.n))
        while len(outside):
            words[outside] = step(words[outside])
            outside = outside[words[outside] >= np.uint64(self.n)]
        return words.astype(np.int64)

    def _forward(self, words: Words) -> Words:
        left, right = words >> self._half_bits, words & self._half_mask
        for key in self._keys:
            left, right = right, left ^ self._round(right, key)
        return left << self._half_bits | right

    def _backward(self, words: Words) -> Words:
        left, right = words >> self._half_bits, words & self._half_mask
        for key in self._keys[::-1]:
            left, right = right ^ self._round(left, key), left
        return left << self._half_bits | right

    def _round(self, half: Words, key: np.uint64) -> Words:
        return mix(half ^ key) >> self._spare_bits
