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

from tokpress.batches import Int64s, TextBatch, concat_text, preview
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
    taken: int  # how many of the batch's documents these are, rejects counted


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


def render_each(batch: TextBatch, inputs: Sequence[Input], max_bytes: int, render: Callable[[int], Text]) -> Rendered:
    """A batch one document after the other, for templates that are Python. `render` raises BadRecord."""
    outcomes: list[Text | BadRecord] = []
    size = 0
    while len(outcomes) < len(batch) and size < max_bytes:
        try:
            text, spans = render(len(outcomes))
            outcomes.append((text, spans))
            size += len(text)
        except BadRecord as bad:
            outcomes.append(bad)
    return _collected(batch, inputs, outcomes)


def _collected(batch: TextBatch, inputs: Sequence[Input], outcomes: Sequence[Text | BadRecord]) -> Rendered:
    good = [i for i, outcome in enumerate(outcomes) if not isinstance(outcome, BadRecord)]
    bad = {i: (outcome.reason, outcome.detail) for i, outcome in enumerate(outcomes) if isinstance(outcome, BadRecord)}
    rejects = rejected(batch, bad, inputs)
    texts = [outcome for outcome in outcomes if not isinstance(outcome, BadRecord)]
    rendered = replace(
        batch.only(np.array(good, np.int64), rejects), text=pa.array([text for text, _ in texts], pa.large_string())
    )
    return Rendered(rendered, _flat([in_bytes(text, spans) for text, spans in texts]), len(outcomes))


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
    return Rendered(concat_text([part.batch for part in parts]), joined, sum(part.taken for part in parts))


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
