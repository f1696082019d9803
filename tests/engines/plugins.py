"""Packages that add engines, as pip would install them: a module and what it declares."""

from __future__ import annotations

from collections.abc import Callable

Install = Callable[..., None]

ENGINES = '''
import numpy as np
from tokpress.batches import TokenBatch
from tokpress.engines.bytes import BytesEngine
from tokpress.engines.fast import FastEncoder
from tokpress.engines.table import EngineSpec
from tokpress.errors import TokenizerError


class Swift(FastEncoder):
    """Right about every document but those with "wrong" in them; not sure of those with "unsure"."""

    memory_per_byte = 3
    wrong = "wrong"

    def __init__(self, files, policy):
        self.right = BytesEngine(files, policy)

    def encode(self, text, *, threads=1):
        tokens = self.right.encode(text)
        if any("panic" in document for document in text.to_pylist()):
            raise TokenizerError("it cannot encode this")
        ids = tokens.ids.copy()
        for i, document in enumerate(text.to_pylist()):
            if self.wrong in document or "unsure" in document:
                ids[tokens.ends[i] - 1] ^= 1
        return TokenBatch(ids, tokens.ends)

    def doubtful(self, text):
        return np.flatnonzero(["unsure" in document for document in text.to_pylist()])


class Other(Swift):
    wrong = "mistaken"


def picky(files, policy):
    raise TokenizerError("it takes no bytes")


def spec(name, make, rank, kinds=("bytes",)):
    return EngineSpec(name=name, kinds=kinds, role="fast", make=f"{__name__}:{make}", rank=rank)


swift = spec("swift", "Swift", 2)
other = spec("other", "Other", 3)
choosy = spec("choosy", "picky", 1)
'''
