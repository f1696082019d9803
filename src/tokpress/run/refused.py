"""Documents that the tokenizer has no ids for: a word model without an unknown token, for example.

In: rendered documents. Out: their ids; those that the tokenizer refuses are rejects instead, each with what it said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokpress.batches import TextBatch, TokenBatch
from tokpress.documents.base import Rendered, rejected
from tokpress.documents.shape import first_of_record, only_documents
from tokpress.engines.base import Engine
from tokpress.errors import CannotEncode
from tokpress.records import CANNOT_ENCODE, Input


def encode_or_reject(
    engine: Engine, rendered: Rendered, inputs: Sequence[Input], threads: int = 1
) -> tuple[Rendered, TokenBatch]:
    """The documents that have ids, and these."""
    batch = rendered.batch
    try:
        return rendered, engine.encode(batch.text, threads=threads)
    except CannotEncode:
        refused = _refused(engine, batch)
    # A record that makes several documents is rejected whole, once: it is written or rejected, never both.
    firsts = first_of_record(rendered.continued, len(batch))
    refused = {int(firsts[i]): why for i, why in sorted(refused.items(), reverse=True)}
    good = ~np.isin(firsts, list(refused))
    rendered = only_documents(rendered, good, rejected(batch, refused, inputs))
    return rendered, engine.encode(rendered.batch.text, threads=threads)


def _refused(engine: Engine, batch: TextBatch) -> dict[int, tuple[str, str]]:
    """Which documents, with reason and detail: the batch is halved until each of them stands alone."""
    refused: dict[int, tuple[str, str]] = {}
    waiting = [(0, len(batch))]
    while waiting:
        first, last = waiting.pop()
        try:
            engine.encode(batch.text[first:last])
        except CannotEncode as error:
            middle = (first + last) // 2
            if first == middle:
                refused[first] = (CANNOT_ENCODE, str(error))
            else:
                waiting += [(first, middle), (middle, last)]
    return refused
