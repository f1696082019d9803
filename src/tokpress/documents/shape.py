"""Documents as they are stored: template, frame, loss mask, length.

In: batches as the readers give them, and the ids of their text. Out: a `DocumentBatch`, and a reject for every record that
has no document in it. A token is in the loss if it starts inside a loss span. BOS never is; EOS is if the token before it
is, because a model must learn to stop. All of it is vectorised; plain text gets its frame, and that is all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tokpress.batches import (
    DocumentBatch,
    Flags,
    Int64s,
    Mask,
    TextBatch,
    TokenBatch,
    in_order,
    string_buffers,
)
from tokpress.config import BuildConfig, TemplateConfig
from tokpress.documents.base import Rendered, Spans, rejected, same_record
from tokpress.documents.frame import Frame
from tokpress.documents.starts import Speller, TokenStarts
from tokpress.documents.templates import load_template
from tokpress.records import EMPTY, EMPTY_LOSS, OVERLONG, Input, Reject, TokenizerFiles

_MASK_COST = 20  # bytes held for each of the text, at the worst, while a mask is made: places of tokens, mostly


class Shaper:
    """Made once in each worker."""

    def __init__(
        self, config: BuildConfig, inputs: Sequence[Input], files: TokenizerFiles, frame: Frame, reference: Speller
    ) -> None:
        self._inputs = inputs
        self._config: TemplateConfig = config.template
        self._drop_empty = config.read.drop_empty
        self._keep = config.read.keep
        self._frame = frame
        self._speller = reference
        self._template = load_template(config.template, files, reference.info, inputs)
        self._starts: TokenStarts | None = None  # made when a mask is
        self.memory_per_byte = _MASK_COST if config.template.has_mask else 0

    def spell_with(self, engine: Speller) -> None:
        """Who says from now on where tokens start: the engine that encodes, which may know it sooner than its reference."""
        self._speller, self._starts = engine, None

    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:
        """The first documents of a batch as the text that is encoded; with them the batch's rejects among them."""
        rendered = self._template.render(batch, max_bytes)
        made = rendered.batch
        if self._drop_empty:
            filled = np.diff(string_buffers(made.text)[0]) > 0
            if not filled.all():
                gone = _records_without(filled, rendered.continued)
                empty = dict.fromkeys(gone.tolist(), (EMPTY, "no text"))
                rendered = only_documents(rendered, filled, rejected(made, empty, self._inputs))
                made = rendered.batch
        rejects, _ = _rejects_around(batch, rendered.taken)
        if not rejects:
            return rendered
        return replace(rendered, batch=replace(made, rejects=in_order([*rejects, *made.rejects])))

    def rest(self, batch: TextBatch, rendered: Rendered) -> TextBatch | None:
        """What of the batch is yet to be rendered, with the other rejects."""
        if rendered.taken == len(batch):
            return None
        return replace(batch.part(rendered.taken), rejects=_rejects_around(batch, rendered.taken)[1])

    def shape(
        self, rendered: Rendered, tokens: TokenBatch, audited: Int64s | None = None
    ) -> tuple[DocumentBatch, list[Reject]]:
        """What is written of it, whose ids are `tokens`, and what is not, in order."""
        batch = rendered.batch
        framed = self._frame.apply(tokens)
        docs = DocumentBatch(
            tokens=framed,
            positions=batch.positions,
            sources=batch.sources,
            mask=None if rendered.spans is None else self._mask(batch, rendered.spans, tokens, framed),
            kept=batch.kept.select(list(self._keep)) if self._keep and batch.kept is not None else None,
            splits=batch.splits,
            continued=rendered.continued,
            audited=None if audited is None else _flags(audited, len(batch)),
        )
        if docs.mask is None and self._config.max_length is None:
            return docs, batch.rejects
        return self._fit(docs, batch)

    def _mask(self, batch: TextBatch, spans: Spans, tokens: TokenBatch, framed: TokenBatch) -> Mask:
        self._starts = self._starts or TokenStarts(self._speller)
        of_tokens = self._starts.find(batch.text, tokens)
        offsets = string_buffers(batch.text)[0]
        doc = np.repeat(np.arange(len(batch)), np.diff(spans.ends, prepend=0))  # of each span
        begins = (offsets[:-1] - offsets[0])[doc]
        # The tokens of a span: from the first one that starts in it to the one before the first that starts after it, of
        # its own document: at a document's border stands the next one's first token, too.
        ends = np.concatenate([[0], tokens.ends])
        first, last = (
            np.clip(np.searchsorted(of_tokens, begins + bounds), ends[doc], ends[doc + 1])
            for bounds in (spans.starts, spans.stops)
        )
        filled = first < last
        doc, first, last = doc[filled], first[filled], last[filled]
        bos, eos = int(self._frame.bos_id is not None), int(self._frame.eos_id is not None)
        shift = doc * (bos + eos) + bos  # what the frame has put before them
        change = np.zeros(len(framed.ids) + 1, np.int8)
        change[first + shift] += 1
        change[last + shift + eos * (last == ends[doc + 1])] -= 1
        return np.cumsum(change[:-1], dtype=np.int8).view(np.uint8)

    def _fit(self, docs: DocumentBatch, batch: TextBatch) -> tuple[DocumentBatch, list[Reject]]:
        """Long records are cut, dropped or split, and those dropped of which nothing is in the loss."""
        limit, how = self._config.max_length, self._config.overlong
        lengths = np.diff(docs.tokens.ends, prepend=0)
        long = np.zeros(len(docs), np.bool_) if limit is None else lengths > limit
        reasons: dict[int, tuple[str, str]] = {}
        if limit is not None and long.any() and how == "drop":
            detail = "{:,} tokens, --max-length is {:,}"
            # A record whose documents are its turns is left out whole: it is written or rejected, never both.
            firsts = first_of_record(docs.continued, len(docs))[long].tolist()
            longest = dict(zip(firsts, lengths[long].tolist(), strict=True))
            reasons = {i: (OVERLONG, detail.format(length, limit)) for i, length in longest.items()}
        elif limit is not None and long.any() and how == "truncate":
            docs = _truncated(docs, lengths, limit, long)
        if docs.mask is not None and not self._config.keep_empty_loss:
            detail = "no token starts inside what is learned; keep such records with --keep-empty-loss"
            some = _loss_tokens(docs) > 0
            reasons = dict.fromkeys(_records_without(some, docs.continued).tolist(), (EMPTY_LOSS, detail)) | reasons
        else:
            some = np.ones(len(docs), np.bool_)
        rejects = batch.rejects
        if reasons or not some.all():
            records = first_of_record(docs.continued, len(docs))
            keep = some & ~np.isin(records, list(reasons))
            docs = replace(docs.take(np.flatnonzero(keep)), continued=same_record(records[keep]))
            rejects = in_order([*rejects, *rejected(batch, reasons, self._inputs)])
        if limit is not None and how == "split":
            docs = _split(docs, limit)
        return docs, rejects


def first_of_record(continued: Flags | None, docs: int) -> Int64s:
    """Of each document, the first one of its record."""
    numbers = np.arange(docs)
    return numbers if continued is None else np.maximum.accumulate(np.where(continued, 0, numbers))


def _records_without(good: Flags, continued: Flags | None) -> Int64s:
    """The first documents of records that have no good one."""
    firsts = first_of_record(continued, len(good))
    return np.setdiff1d(firsts, firsts[good])


def _rejects_around(batch: TextBatch, doc: int) -> tuple[list[Reject], list[Reject]]:
    """The batch's rejects before a document, and those after it."""
    if doc == len(batch):
        return batch.rejects, []
    here = int(batch.sources[doc]), int(batch.positions[doc])
    before = [reject for reject in batch.rejects if (reject.input, reject.position) < here]
    return before, batch.rejects[len(before) :]


def first_records(docs: DocumentBatch, rejects: list[Reject], records: int) -> tuple[DocumentBatch, list[Reject]]:
    """Only so many records, and of the rejects those that stand before the last of them."""
    if docs.records <= records:
        return docs, rejects
    firsts = np.arange(len(docs)) if docs.continued is None else np.flatnonzero(~docs.continued)
    docs = docs.part(0, int(firsts[records]))
    if not len(docs):
        return docs, []
    last = int(docs.sources[-1]), int(docs.positions[-1])
    return docs, [reject for reject in rejects if (reject.input, reject.position) < last]


def only_documents(rendered: Rendered, good: Flags, rejects: list[Reject]) -> Rendered:
    """Without some documents, which are rejects instead."""
    batch = rendered.batch.only(np.flatnonzero(good), in_order([*rendered.batch.rejects, *rejects]))
    spans = rendered.spans
    if spans is not None:
        counts = np.diff(spans.ends, prepend=0)
        chosen = np.repeat(good, counts)
        spans = Spans(spans.starts[chosen], spans.stops[chosen], np.cumsum(counts[good], dtype=np.int64))
    continued = None
    if rendered.continued is not None:
        continued = same_record(first_of_record(rendered.continued, len(good))[good])
    return Rendered(batch, spans, rendered.taken, continued)


def _loss_tokens(docs: DocumentBatch) -> Int64s:
    """Learned tokens of each document."""
    mask = np.empty(0, np.uint8) if docs.mask is None else docs.mask
    before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
    loss_tokens: Int64s = np.diff(before[docs.tokens.ends], prepend=0)
    return loss_tokens


def _truncated(docs: DocumentBatch, lengths: Int64s, limit: int, long: Flags) -> DocumentBatch:
    starts = docs.tokens.ends - lengths
    kept = np.minimum(lengths, limit)
    inside = np.arange(len(docs.tokens.ids)) - np.repeat(starts, lengths) < limit
    tokens = TokenBatch(docs.tokens.ids[inside], np.cumsum(kept))
    mask = None if docs.mask is None else docs.mask[inside]
    cut = np.flatnonzero(long)  # a record counts once, however many of its documents are cut
    records = first_of_record(docs.continued, len(docs))[cut]
    once = _flags(cut[np.unique(records, return_index=True)[1]], len(docs))
    return replace(docs, tokens=tokens, mask=mask, truncated=once)


def _split(docs: DocumentBatch, limit: int) -> DocumentBatch:
    """Documents of at most so many tokens, several for a longer record."""
    lengths = np.diff(docs.tokens.ends, prepend=0)
    pieces = np.maximum(-(-lengths // limit), 1)
    if not len(docs) or pieces.max() == 1:
        return docs
    records = np.repeat(np.arange(len(docs)), pieces)
    number = np.arange(len(records)) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of a piece within its record
    ends = np.minimum((docs.tokens.ends - lengths)[records] + (number + 1) * limit, docs.tokens.ends[records])
    return DocumentBatch(
        tokens=TokenBatch(docs.tokens.ids, ends),
        positions=docs.positions[records],
        sources=docs.sources[records],
        mask=docs.mask,
        kept=None if docs.kept is None else docs.kept.take(records),
        splits=None if docs.splits is None else docs.splits[records],
        continued=(number > 0) if docs.continued is None else (number > 0) | docs.continued[records],
        truncated=None,
        audited=None if docs.audited is None else docs.audited[records] & (number == 0),
    )


def _flags(chosen: Int64s, length: int) -> Flags:
    flags = np.zeros(length, np.bool_)
    flags[chosen] = True
    return flags
