"""What a template is.

In: a `TextBatch` as the readers give it. Out: `Rendered`: the text to encode, and the spans of it that are in the loss, as
flat arrays for all documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa

from tokpress.batches import Flags, Int64s, TextBatch, concat_text, preview
from tokpress.records import Input, Reject


@dataclass(frozen=True, slots=True)
class Spans:
    """Bytes of each document's text that are in the loss: those of document i are `[starts[k], stops[k])` for k from
    `ends[i - 1]` to `ends[i]`, counted from the document's own start; ascending, none empty, none overlapping."""

    starts: Int64s
    stops: Int64s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class Rendered:
    """The first documents of a batch, rendered; those that could not be are rejects instead."""

    batch: TextBatch
    spans: Spans | None  # None: nothing is said about loss
    taken: int  # how many of the batch's records these are, rejects counted
    continued: Flags | None = None  # the document goes on with the record of the one before; None: a document a record


class Template(Protocol):
    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:
        """As many documents from the start of the batch as fit into about so many bytes of text, at least one. The batch's
        own rejects are left out: they are for the caller to put in order."""
        ...


class BadRecord(Exception):  # noqa: N818 - it is no error of ours
    """A record that a template has no text for."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


Text = tuple[str, list[tuple[int, int]]]  # a document, and the characters of it that are in the loss


def render_each(
    batch: TextBatch, inputs: Sequence[Input], max_bytes: int, render: Callable[[int], list[Text]]
) -> Rendered:
    """A batch one record after the other, for templates that are Python. `render` gives at least one document for each, or
    raises BadRecord."""
    outcomes: list[list[Text] | BadRecord] = []
    size = 0
    while len(outcomes) < len(batch) and size < max_bytes:
        try:
            texts = render(len(outcomes))
            outcomes.append(texts)
            size += sum(len(text) for text, _ in texts)
        except BadRecord as bad:
            outcomes.append(bad)
    return _collected(batch, inputs, outcomes)


def _collected(batch: TextBatch, inputs: Sequence[Input], outcomes: Sequence[list[Text] | BadRecord]) -> Rendered:
    made = [(i, text) for i, outcome in enumerate(outcomes) if not isinstance(outcome, BadRecord) for text in outcome]
    records, texts = np.array([i for i, _ in made], np.int64), [text for _, text in made]
    bad = {i: (outcome.reason, outcome.detail) for i, outcome in enumerate(outcomes) if isinstance(outcome, BadRecord)}
    rejects = rejected(batch, bad, inputs)
    rendered = replace(batch.only(records, rejects), text=pa.array([text for text, _ in texts], pa.large_string()))
    spans = _flat([in_bytes(text, spans) for text, spans in texts])
    return Rendered(rendered, spans, len(outcomes), same_record(records))


def same_record(records: Int64s) -> Flags | None:
    """Which documents go on with the record of the one before, by the number of each one's record; None: none does."""
    continued = np.diff(records, prepend=-1) == 0
    return continued if continued.any() else None


def rejected(batch: TextBatch, reasons: Mapping[int, tuple[str, str]], inputs: Sequence[Input]) -> list[Reject]:
    """Some documents of a batch as rejects: reason and detail for each."""
    return [
        Reject(
            source=inputs[int(batch.sources[i])].path,
            input=int(batch.sources[i]),
            position=int(batch.positions[i]),
            reason=reason,
            detail=detail,
            preview=preview(batch.text[i].as_buffer().to_pybytes()),
        )
        for i, (reason, detail) in sorted(reasons.items())
    ]


def concat_rendered(parts: Sequence[Rendered]) -> Rendered:
    """Consecutive documents of one batch that were rendered one by one."""
    spans = [part.spans for part in parts if part.spans is not None]
    counts = np.cumsum([0, *(len(each.starts) for each in spans)])
    ends = [each.ends + before for each, before in zip(spans, counts, strict=False)]
    joined = None
    if spans:
        starts, stops = ([getattr(each, name) for each in spans] for name in ("starts", "stops"))
        joined = Spans(np.concatenate(starts), np.concatenate(stops), np.concatenate(ends))
    flags = [np.zeros(len(part.batch), np.bool_) if part.continued is None else part.continued for part in parts]
    continued = np.concatenate(flags) if any(part.continued is not None for part in parts) else None
    return Rendered(concat_text([part.batch for part in parts]), joined, sum(part.taken for part in parts), continued)


def in_bytes(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of characters as spans of bytes: in order, joined where they overlap, without empty ones."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted((start, stop) for start, stop in spans if start < stop):
        if joined and start < joined[-1][1]:
            start, last = joined.pop()
            stop = max(stop, last)
        joined.append((start, stop))
    if text.isascii():
        return joined
    return [(len(text[:start].encode()), len(text[:stop].encode())) for start, stop in joined]


def _flat(spans: Sequence[Sequence[tuple[int, int]]]) -> Spans:
    bounds = np.array(list(chain.from_iterable(spans)), np.int64).reshape(-1, 2)
    return Spans(bounds[:, 0].copy(), bounds[:, 1].copy(), np.cumsum([len(each) for each in spans], dtype=np.int64))
