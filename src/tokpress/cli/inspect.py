"""`tokpress inspect`: what is in a store, as numbers and as text with its token boundaries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tokpress.cli.printable import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.text import Text

    from tokpress.batches import Ids, Mask
    from tokpress.store.reader import Store
    from tokpress.store.summary import LengthClass, StoreSummary
    from tokpress.view.documents import DocumentView, TokenView

_EPILOG = """
\b
Examples:
  tokpress inspect tokens
  tokpress inspect tokens --doc 17
  tokpress inspect tokens --seq 3 --seq-len 2048
  tokpress inspect tokens --json | jq .tokens_per_doc
"""
_SAMPLE_DOCS = 3
_SAMPLE_TOKENS = 64
_BAR_WIDTH = 50
_WHITESPACE = {"\n": "⏎\n", "\t": "→   "}
_COLOURS = tuple(f"bright_white on {name}" for name in ("grey23", "dark_blue", "dark_green", "deep_pink4", "orange4"))


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--doc", type=int, metavar="N", help="Show document N whole (from 0; -1 is the last).")
@click.option("--seq", type=click.IntRange(min=0), metavar="N", help="Show sequence N of --seq-len tokens.")
@click.option("--seq-len", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--split", default="train", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output.")
def command(store: str, doc: int | None, seq: int | None, seq_len: int, split: str, as_json: bool) -> None:
    """Show STORE: totals, tokens per document, and documents decoded with every token in a colour of its own."""
    from tokpress.cli.show import out_console
    from tokpress.errors import UsageError
    from tokpress.store.reader import open_store
    from tokpress.view.documents import view_document
    from tokpress.view.sequences import view_sequence

    if doc is not None and seq is not None:
        raise UsageError("--doc and --seq show two different things. Give one of them.")
    opened = open_store(store, split)
    console = out_console()
    facts: object
    if doc is not None:
        _check_doc(opened, doc)
        document = view_document(opened, doc, count=None)
        facts = _doc_facts(opened, document)
        draw = partial(_print_doc, console, document)
    elif seq is not None:
        _check_seq(opened, seq, seq_len)
        tokens = view_sequence(opened, seq, seq_len=seq_len).tokens
        ids = [token.id for token in tokens]
        facts = {"seq": seq, "ids": ids, "text": opened.decode(ids)}
        draw = partial(_print_seq, console, seq, seq_len, tokens)
    else:
        facts = opened.summary()
        draw = partial(_print_store, console, opened, facts)
    if as_json:
        print_json(facts)
    else:
        draw()


def _check_doc(store: Store, doc: int) -> None:
    from tokpress.errors import UsageError

    count = store.num_docs
    if not -count <= doc < count:
        has = f"{count:,} documents, 0 to {count - 1}" if count else "no documents"
        raise UsageError(f"--doc {doc}: split {store.split_name!r} of {store.url} has {has}.")


def _check_seq(store: Store, seq: int, seq_len: int) -> None:
    from tokpress.errors import UsageError

    count = store.num_tokens // seq_len
    if seq >= count:
        has = f"{count:,} whole sequences of {seq_len:,} tokens" + (f", 0 to {count - 1}" if count else "")
        raise UsageError(f"--seq {seq}: split {store.split_name!r} of {store.url} has {has}.")


def _doc_facts(store: Store, view: DocumentView) -> dict[str, object]:
    ids = [token.id for token in view.tokens]
    facts = {"doc": view.doc, "source": view.source, "position": view.position, "ids": ids, "text": store.decode(ids)}
    mask = [] if view.loss_tokens is None else [int(bool(token.loss)) for token in view.tokens]
    return facts | ({"kept": view.kept} if view.kept else {}) | ({} if view.loss_tokens is None else {"mask": mask})


def _print_seq(console: Console, seq: int, seq_len: int, tokens: list[TokenView]) -> None:
    console.print(f"[dim]sequence {seq:,} · tokens {seq * seq_len:,} to {(seq + 1) * seq_len:,}[/]")
    console.print(_drawn(tokens), soft_wrap=True)


def _print_store(console: Console, store: Store, facts: StoreSummary) -> None:
    from tokpress.cli.show import plural, print_fact, safe
    from tokpress.view.documents import view_document

    splits = ", ".join(map(safe, facts.splits))
    print_fact(console, "store", f"{safe(facts.path)}, split {safe(facts.split)} of {splits}")
    where = f"in {plural(facts.docs, 'document')}, {plural(facts.shards, 'shard')} of {facts.dtype}"
    print_fact(console, "tokens", f"{facts.tokens:,} {where}")
    if facts.loss_tokens is not None:
        print_fact(console, "loss tokens", plural(facts.loss_tokens, "token"))
    kind = f"{safe(facts.tokenizer.kind)}, {facts.tokenizer.vocab_size:,} tokens"
    print_fact(console, "tokenizer", f"{kind}, {safe(facts.tokenizer.fingerprint[:12])}")
    print_fact(console, "records", f"{facts.read:,} read, {facts.rejected:,} rejected")
    print_fact(console, "proof", f"parity {safe(facts.parity)}, {plural(facts.audited_docs, 'document')} audited")
    spread = facts.tokens_per_doc
    if spread is not None:
        percentiles = " · ".join(f"{name} {getattr(spread, name):,.0f}" for name in ("p50", "p90", "p99", "max"))
        empty = f" · {spread.empty:,} empty" if spread.empty else ""
        print_fact(console, "per doc", f"mean {spread.mean:,} · {percentiles}{empty}")
        _print_histogram(console, spread.histogram)
    shown = min(_SAMPLE_DOCS, facts.docs)
    for k in range(shown):
        console.print()
        _print_doc(console, view_document(store, k * facts.docs // shown, count=_SAMPLE_TOKENS))


def _print_histogram(console: Console, histogram: list[LengthClass]) -> None:
    most = max((entry.docs for entry in histogram), default=0)
    first = next((i for i, entry in enumerate(histogram) if entry.docs), len(histogram))
    if most:
        console.print("\n[dim]    tokens  documents[/]")
    for entry in histogram[first:]:
        bar = "█" * round(entry.docs / most * _BAR_WIDTH) or ("▏" if entry.docs else "")
        console.print(f"[dim]≤ {entry.up_to:>8,}[/]  [cyan]{bar}[/] {entry.docs:,}")


def _print_doc(console: Console, view: DocumentView) -> None:
    from tokpress.cli.show import plural, safe

    tokens = plural(view.num_tokens, "token")
    console.print(f"[dim]document {view.doc:,} · {tokens} · {safe(view.source)} at {view.position:,}[/]")
    for name, value in view.kept.items():
        console.print(f"[dim]{safe(name)}: {safe(value)}[/]")
    if view.loss_tokens is not None:
        loss_tokens = plural(view.loss_tokens, "loss token")
        console.print(f"[dim]{loss_tokens}; others stand without a background[/]")
    shown = _drawn(view.tokens)
    console.print(shown if view.next_token is None else shown.append(" …", "dim"), soft_wrap=True)


def coloured(store: Store, ids: Ids, mask: Mask | None = None) -> Text:
    """Tokens that stand together, as `_drawn` shows them."""
    from tokpress.view.documents import view_tokens

    return _drawn(view_tokens(store, ids, mask))


def _drawn(tokens: Iterable[TokenView]) -> Text:
    """Each token on a background of its own, if it is in the loss."""
    from rich.text import Text

    shown = Text()
    for count, token in enumerate(tokens):
        style = "bold black on yellow" if token.special else _COLOURS[count % len(_COLOURS)]
        if token.loss is False:
            style = "yellow" if token.special else "bright_black" if count % 2 else "dim"
        shown.append(_visible(token.text), style)
    return shown


def _visible(piece: str) -> str:
    """Line ends and tabs are shown and kept, other control characters shown instead."""
    from tokpress.cli.printable import printable

    return "".join(_WHITESPACE.get(char) or printable(char) for char in piece)
