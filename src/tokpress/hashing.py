"""A hash of numbers by whole arrays, the same on every machine and in every version.

In: 64-bit words. Out: words of which every bit depends on every bit of the input.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(words: Words) -> Words:
    """splitmix64's step and finalizer."""
    words = words + GOLDEN  # a new array: what follows may work in place
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
