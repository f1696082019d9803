"""When handing text to workers pays.

In: what a call of the engine costs, what a byte costs, what handing a part over costs: all measured here, on this machine.
Out: into how many parts a batch is cut, and where. One part is a plain call: a small batch is not slower for having a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s, text_bytes
from tokpress.engines.base import Engine

_WORTH = 4  # times what handing it over costs, a part must take to encode
_PARTS_EACH = 4  # at most, for each worker: the later ones go to whoever is free
_TRIES = 5
_SAMPLES = 16
_NOISE = 10  # a call for nothing may have been disturbed; at least a tenth of the whole is for the text
_SAMPLE = """A pool that is made for every batch costs more than the batch. One that is made once costs nothing after that,
but each part of a batch still has to be handed over, waited for and put together again: some tens of microseconds with
threads, some hundreds with processes. A tokenizer like SentencePiece takes about as long for a paragraph such as this one.
So the question is never whether to work in parallel but from which size on, and the answer differs from machine to machine
and from tokenizer to tokenizer; this text is here to ask it: Ünïcödé, 1,024 numbers (3.14), `code(x)[0]`, 日本語, 🙂.\n"""


@dataclass(frozen=True, slots=True)
class Costs:
    """All in seconds."""

    call: float  # of the engine, however short the text is
    byte: float  # of text
    handover: float  # of one part to a worker and back

    def parts(self, size: int, texts: int, workers: int) -> int:
        """Into how many parts so many bytes of so many texts are best cut."""
        if workers < 2:
            return 1
        worth = int(self.byte * size / (_WORTH * (self.call + self.handover)))
        return max(min(worth, texts, _PARTS_EACH * workers), 1)

    @property
    def crossover_bytes(self) -> int:
        """From this size on a batch is cut into parts."""
        return int(2 * _WORTH * (self.call + self.handover) / self.byte) + 1


def bounds_of(parts: int, starts: Int64s) -> Iterable[tuple[int, int]]:
    """Of at most so many parts of about as many bytes each: a text goes to the part that its middle lies in."""
    middles = starts[:-1] + starts[1:] - 2 * starts[0]  # twice as far from the start, so that they are whole numbers
    cuts = np.arange(1, parts) * 2 * (starts[-1] - starts[0]) // parts
    return pairwise(sorted({0, len(middles), *middles.searchsorted(cuts).tolist()}))


def measure_costs(engine: Engine, handover: float) -> Costs:
    """Takes some milliseconds. Caches are warm after the first try, as they are in a training loop."""
    nothing, sample = (pa.array(texts, pa.large_string()) for texts in (["a"], [_SAMPLE] * _SAMPLES))
    call, both = quickest(lambda: engine.encode(nothing)), quickest(lambda: engine.encode(sample))
    return Costs(call, max(both - call, both / _NOISE) / text_bytes(sample), handover)


def quickest(action: Callable[[], object]) -> float:
    """Seconds; the least of a few tries is the one that was disturbed least."""
    seconds = []
    for _ in range(_TRIES):
        began = perf_counter()
        action()
        seconds.append(perf_counter() - began)
    return min(seconds)
