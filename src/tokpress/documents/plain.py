"""Plain text: a document is its text, and nothing is said about loss."""

from __future__ import annotations

from dataclasses import replace

from tokpress.batches import TextBatch
from tokpress.documents.base import Rendered, Template


class PlainText(Template):
    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:  # noqa: ARG002 - it is as long as it is
        return Rendered(replace(batch, rejects=[]) if batch.rejects else batch, None, len(batch))
