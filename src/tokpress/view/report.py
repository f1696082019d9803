"""A store as one file to send to a colleague.

In: an open store. Out: an HTML page that needs nothing else: no script, no font, no request, every text escaped; and the
same plots as PNG, where matplotlib is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import msgspec

from tokpress.drawing import STYLE, bars, facts, line
from tokpress.figure import new_figure
from tokpress.packing.waste import new_plot, plot_waste
from tokpress.store.reader import Store
from tokpress.store.summary import StoreSummary
from tokpress.view.counts import LengthsView, TokenCounts, view_lengths, view_token_counts
from tokpress.view.documents import drawn, view_document
from tokpress.view.packings import PackingView, view_packings
from tokpress.view.provenance import ProvenanceView, RejectsView, view_provenance, view_rejects

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOCS, _DOC_TOKENS = 3, 256
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_PAGE_STYLE = """
:root{color-scheme:light dark}body{margin:2rem auto;max-width:62rem;padding:0 1rem;background:light-dark(#fff,#15171b)}
.tokpress h1{font-size:24px;margin:0 0 .2em}.tokpress h2{font-size:16px;margin:1.6em 0 .4em;
border-top:1px solid light-dark(#e2e2dd,#31353d);padding-top:1em}
.tokpress pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2em 0 .6em;font-size:12px}
"""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report says, once it is counted."""

    summary: StoreSummary
    lengths: LengthsView
    counts: TokenCounts
    provenance: ProvenanceView
    rejects: RejectsView
    packings: list[PackingView]
    documents: list[tuple[str, str]]  # where each comes from, and its tokens as markup

    def html(self) -> str:
        name = self.summary.path.rstrip("/").rpartition("/")[2]
        body = "".join(f"<h2>{escape(title)}</h2>{part}" for title, part in self._parts())
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
            f'content="{_POLICY}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{line(name)}'
            f'</title><style>{STYLE}{_PAGE_STYLE}</style></head><body><main class="tokpress"><h1>{line(name)}</h1>'
            f'<p class="n">{line(self.summary.path)}, split {line(self.summary.split)}</p>{body}</main></body></html>\n'
        )

    def _parts(self) -> Iterator[tuple[str, str]]:
        found = self.summary
        yield (
            "Totals",
            facts(
                [
                    ("tokens", f"{found.tokens:,} ({found.dtype})"),
                    ("documents", f"{found.docs:,}"),
                    *([("in the loss", f"{found.loss_tokens:,} tokens")] if found.loss_tokens is not None else []),
                    ("records", f"{found.read:,} read = {found.written:,} written + {found.rejected:,} rejected"),
                    ("tokenizer", f"{found.tokenizer.kind}, {found.tokenizer.vocab_size:,} tokens"),
                    ("proof", f"parity {found.parity}, {found.audited_docs:,} documents audited"),
                    ("characters a token", f"{self.counts.chars_per_token:.2f}"),
                    ("fingerprint", found.fingerprint),
                ]
            ),
        )
        if len(found.splits) > 1:
            yield (
                "Splits",
                bars([(name, each.tokens, f"{each.tokens:,} tokens") for name, each in found.splits.items()]),
            )
        histogram = self.lengths.lengths.histogram
        lengths = bars([(f"up to {each.up_to:,}", each.docs, f"{each.docs:,}") for each in histogram])
        yield "Document lengths, in tokens", lengths + _sampled(self.lengths.looked_at, found.docs, "documents")
        frequent = [(f"{each.text!r}", each.count, f"{each.count:,}") for each in self.counts.frequent]
        yield "Most frequent tokens", bars(frequent) + _sampled(self.counts.looked_at, found.tokens, "tokens")
        yield (
            "Tokens by source",
            bars([(each.path, each.tokens, f"{each.tokens:,}") for each in self.provenance.sources]),
        )
        yield (
            "Packings",
            facts([(f"{each.waste.method} {each.waste.seq_len:,}", _said(each)) for each in self.packings]),
        )
        if self.rejects.rejected:
            yield "Rejects", self._rejects()
        yield "Documents", "".join(f'<p class="n">{line(where)}</p>{tokens}' for where, tokens in self.documents)

    def _rejects(self) -> str:
        parts = [bars([(each.reason, each.count, f"{each.count:,}") for each in self.rejects.reasons])]
        for reason in self.rejects.reasons:
            parts += [
                f'<p class="n">{line(each.source)} at {each.position:,}: {line(each.detail)}</p>'
                f"<pre>{line(each.preview)}</pre>"
                for each in reason.examples
            ]
        return "".join(parts)

    def plots(self) -> Iterator[tuple[str, Figure]]:
        """Names and figures."""
        histogram = self.lengths.lengths.histogram
        yield (
            "lengths",
            _plot([f"{each.up_to:,}" for each in histogram], [each.docs for each in histogram], "documents"),
        )
        names = [f"{each.text!r} ({each.id})" for each in self.counts.frequent[:25]]
        yield "frequent", _plot(names, [each.count for each in self.counts.frequent[:25]], "tokens", across=True)
        sources = self.provenance.sources[:25]
        yield (
            "sources",
            _plot([each.path[-40:] for each in sources], [each.tokens for each in sources], "tokens", across=True),
        )
        for each in self.packings:
            figure = new_plot()
            plot_waste(each.waste, figure)
            yield f"packing-{each.waste.method}-{each.waste.seq_len}", figure


def report_store(store: Store, *, seq_len: int = 2048) -> StoreReport:
    """Counts what a report says of this split; of a large store from samples."""
    shown = min(_DOCS, store.num_docs)
    views = [view_document(store, k * store.num_docs // shown, count=_DOC_TOKENS) for k in range(shown)]
    return StoreReport(
        summary=store.summary(lengths=False),
        lengths=view_lengths(store),
        counts=view_token_counts(store, frequent=25),
        provenance=view_provenance(store),
        rejects=view_rejects(store),
        packings=view_packings(store, seq_len=seq_len),
        documents=[
            (
                f"document {view.doc:,}, {view.num_tokens:,} tokens, {view.source} at {view.position:,}",
                drawn(view.tokens),
            )
            for view in views
        ],
    )


def _said(packing: PackingView) -> str:
    waste = packing.waste
    about = "about " if packing.looked_at < waste.docs else ""
    return (
        f"{waste.sequences:,} sequences, {packing.efficiency:.2%} of positions hold tokens, "
        f"{about}{waste.docs_cut:,} documents cut, {waste.truncated_tokens:,} tokens left out"
    )


def _sampled(looked_at: int, there_are: int, what: str) -> str:
    return "" if looked_at >= there_are else f'<p class="n">From a sample of {looked_at:,} of {there_are:,} {what}.</p>'


def _plot(names: list[str], values: list[int], what: str, *, across: bool = False) -> Figure:
    """Bars; `across`: with long names, one below the other."""
    figure = new_figure(9, max(2.5, 0.28 * len(names)) if across else 4)
    axes = figure.subplots()
    places = range(len(names))
    shown = [name.replace("$", r"\$") for name in names]  # no formula
    if across:
        axes.barh(places, values)
        axes.set_yticks(places, shown)
        axes.invert_yaxis()
        axes.set_xlabel(what)
    else:
        axes.bar(places, values)
        axes.set_xticks(places, shown, rotation=45)
        axes.set_ylabel(what)
    return figure
