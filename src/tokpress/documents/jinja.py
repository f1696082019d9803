"""`--template FILE`: any record, any text; `{% loss %}...{% endloss %}` marks what is in the loss.

In: a batch whose text is the whole record as JSON. Out: what the template makes of it. The record's fields are the
template's variables; `record` is all of it, for names that are no identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tokpress.batches import TextBatch
from tokpress.documents.base import BadRecord, Rendered, Template, Text, render_each
from tokpress.documents.sandbox import SandboxedTemplate
from tokpress.errors import UsageError
from tokpress.records import BAD_TEMPLATE, Input

_RECORD = msgspec.json.Decoder(dict[str, Any])


class JinjaTemplate(Template):
    def __init__(self, source: str, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._template = SandboxedTemplate(source, "--template", BAD_TEMPLATE, loss_tag=True)
        if not self._template.has_blocks:
            raise UsageError(
                "--template has no {% loss %}...{% endloss %} block: nothing would be in the loss. Put one around what is."
            )

    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:
        return render_each(batch, self._inputs, max_bytes, lambda i: [self._render(batch.text[i].as_py())])

    def _render(self, data: str) -> Text:
        try:
            record = _RECORD.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRecord(BAD_TEMPLATE, f"the record cannot be read: {error}") from None
        return self._template.render(record | {"record": record}, len(data))
