"""What every id of a tokenizer stands for, in one table.

In: an engine. Out: the bytes of any number of ids at once, end to end. Made once for an engine: each id is looked up.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.batches import Ids, Int64s, string_buffers
from tokpress.engines.base import Engine

Bytes = npt.NDArray[np.uint8]


class Vocabulary:
    """`data` holds the bytes of all ids end to end, `ends` where each stops."""

    def __init__(self, engine: Engine) -> None:
        tokens = [engine.token_bytes(token) for token in range(engine.info.vocab_size)]
        self._table = pa.array(tokens, pa.large_binary())
        bounds, data = string_buffers(self._table)
        self.lengths: Int64s = np.diff(bounds)
        starts_a_char = (data[: bounds[-1]] & 0xC0) != 0x80  # not a byte that goes on with a character of UTF-8
        counted = np.concatenate(([0], np.cumsum(starts_a_char, dtype=np.int64)))
        self.chars: Int64s = counted[bounds[1:]] - counted[bounds[:-1]]

    def __len__(self) -> int:
        return len(self.lengths)

    def spell(self, ids: Ids) -> tuple[Bytes, Int64s]:
        """The bytes of these ids, and where each of them starts; one number more, where the last stops."""
        bounds, data = string_buffers(self._table.take(pa.array(ids)))
        return data[bounds[0] : bounds[-1]], bounds - bounds[0]


_of_engines: WeakKeyDictionary[Engine, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(engine: Engine) -> Vocabulary:
    """The table of this engine, made when it is first asked for."""
    found = _of_engines.get(engine)
    if found is None:
        found = _of_engines[engine] = Vocabulary(engine)
    return found
