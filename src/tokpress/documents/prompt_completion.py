"""A prompt and its completion, of which the completion is in the loss.

In: a batch with the prompt as its text and the completion beside it. Out: both joined in Arrow, without a Python object for
any of them. The separator belongs to the prompt.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import TextBatch, string_buffers
from tokpress.documents.base import Rendered, Spans, Template


class PromptCompletion(Template):
    def __init__(self, completion_field: str, separator: str) -> None:
        self._completion_field = completion_field
        self._separator = separator

    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:  # noqa: ARG002 - it is as long as its parts are
        if batch.kept is None:  # then there is no record at all
            return Rendered(replace(batch, rejects=[]), Spans(*(np.empty(0, np.int64) for _ in range(3))), len(batch))
        completion = batch.kept.column(self._completion_field)
        text = pc.binary_join_element_wise(batch.text, completion, pa.scalar(self._separator, pa.large_string()))
        sizes = np.diff(string_buffers(text)[0])
        loss_bytes = np.diff(string_buffers(completion)[0])
        filled = loss_bytes > 0
        spans = Spans((sizes - loss_bytes)[filled], sizes[filled], np.cumsum(filled, dtype=np.int64))
        return Rendered(replace(batch, text=text, rejects=[]), spans, len(batch))
