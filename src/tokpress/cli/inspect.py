"""`tokpress inspect`: what is in a store, as numbers and as text with its token boundaries."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tokpress.batches import Ids, Mask
    from tokpress.store.reader import Store

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
    import msgspec

    from tokpress.cli.show import out_console
    from tokpress.errors import UsageError
    from tokpress.store.reader import open_store

    if doc is not None and seq is not None:
        raise UsageError("--doc and --seq show two different things. Give one of them.")
    opened = open_store(store, split)
    if doc is not None:
        facts = _doc_facts(opened, doc)
    elif seq is not None:
        facts = _seq_facts(opened, seq, seq_len)
    else:
        facts = _store_facts(opened)
    console = out_console()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    elif doc is not None:
        _print_doc(console, opened, facts["doc"])
    elif seq is not None:
        stop = (seq + 1) * seq_len
        console.print(f"[dim]sequence {seq:,} · tokens {stop - seq_len:,} to {stop:,}[/]")
        console.print(coloured(opened, opened.tokens(stop - seq_len, stop)))
    else:
        _print_store(console, opened, facts)


def _doc_facts(store: Store, doc: int) -> dict[str, Any]:
    from tokpress.errors import UsageError

    count = store.num_docs
    if not -count <= doc < count:
        has = f"{count:,} documents, 0 to {count - 1}" if count else "no documents"
        raise UsageError(f"--doc {doc}: split {store.split_name!r} of {store.path} has {has}.")
    doc %= count
    source, position = store.where(doc)
    ids = store.doc(doc)
    facts = {"doc": doc, "source": source, "position": position, "ids": ids.tolist(), "text": store.decode(ids)}
    kept, mask = store.kept(doc), store.mask(doc)
    return facts | ({"kept": kept} if kept else {}) | ({"mask": mask.tolist()} if mask is not None else {})


def _seq_facts(store: Store, seq: int, seq_len: int) -> dict[str, Any]:
    from tokpress.errors import UsageError

    count = store.num_tokens // seq_len
    if seq >= count:
        has = f"{count:,} whole sequences of {seq_len:,} tokens" + (f", 0 to {count - 1}" if count else "")
        raise UsageError(f"--seq {seq}: split {store.split_name!r} of {store.path} has {has}.")
    ids = store.tokens(seq * seq_len, (seq + 1) * seq_len)
    return {"seq": seq, "ids": ids.tolist(), "text": store.decode(ids)}


def _store_facts(store: Store) -> dict[str, Any]:
    import numpy as np

    manifest = store.manifest
    lengths = store.doc_lengths()
    percentiles = np.percentile(lengths, [50, 90, 99]).tolist() if len(lengths) else [0, 0, 0]
    return {
        "path": str(store.path),
        "split": store.split_name,
        "splits": {name: {"docs": split.docs, "tokens": split.tokens} for name, split in manifest.splits.items()},
        "docs": store.num_docs,
        "tokens": store.num_tokens,
        "learned_tokens": manifest.splits[store.split_name].learned,
        "shards": len(manifest.splits[store.split_name].shards),
        "dtype": manifest.dtype,
        "tokenizer": {
            "kind": manifest.tokenizer.kind,
            "vocab_size": manifest.tokenizer.vocab_size,
            "fingerprint": manifest.tokenizer.fingerprint,
        },
        "bos_id": manifest.bos_id,
        "eos_id": manifest.eos_id,
        "read": manifest.totals.read,
        "rejected": manifest.totals.rejected,
        "rejects": manifest.rejects,
        "parity": manifest.parity.outcome,
        "audited_docs": manifest.audit.docs,
        "fingerprint": manifest.fingerprint,
        "tokens_per_doc": {
            "mean": round(float(lengths.mean()), 1) if len(lengths) else 0,
            "p50": percentiles[0],
            "p90": percentiles[1],
            "p99": percentiles[2],
            "max": int(lengths.max(initial=0)),
            "empty": int((lengths == 0).sum()),
            "histogram": _histogram(lengths),
        },
    }


def _histogram(lengths: Any) -> list[dict[str, int]]:
    """Documents by length, each class twice as wide as the one before."""
    import numpy as np

    classes: Any = np.bincount(np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)) if len(lengths) else []
    return [{"up_to": 2**power, "docs": int(docs)} for power, docs in enumerate(classes)]


def _print_store(console: Console, store: Store, facts: dict[str, Any]) -> None:
    from tokpress.cli.show import plural, print_fact, safe

    splits = ", ".join(map(safe, facts["splits"]))
    print_fact(console, "store", f"{safe(facts['path'])}, split {safe(facts['split'])} of {splits}")
    where = f"in {plural(facts['docs'], 'document')}, {plural(facts['shards'], 'shard')} of {facts['dtype']}"
    print_fact(console, "tokens", f"{facts['tokens']:,} {where}")
    if facts["learned_tokens"] is not None:
        print_fact(console, "learned", plural(facts["learned_tokens"], "token"))
    tokenizer = facts["tokenizer"]
    kind = f"{safe(tokenizer['kind'])}, {tokenizer['vocab_size']:,} tokens"
    print_fact(console, "tokenizer", f"{kind}, {safe(tokenizer['fingerprint'][:12])}")
    print_fact(console, "records", f"{facts['read']:,} read, {facts['rejected']:,} rejected")
    print_fact(console, "proof", f"parity {safe(facts['parity'])}, {plural(facts['audited_docs'], 'document')} audited")
    spread = facts["tokens_per_doc"]
    percentiles = " · ".join(f"{name} {spread[name]:,.0f}" for name in ("p50", "p90", "p99", "max"))
    empty = f" · {spread['empty']:,} empty" if spread["empty"] else ""
    print_fact(console, "per doc", f"mean {spread['mean']:,} · {percentiles}{empty}")
    _print_histogram(console, spread["histogram"])
    shown = min(_SAMPLE_DOCS, store.num_docs)
    for k in range(shown):
        console.print()
        _print_doc(console, store, k * store.num_docs // shown, _SAMPLE_TOKENS)


def _print_histogram(console: Console, histogram: list[dict[str, int]]) -> None:
    most = max((entry["docs"] for entry in histogram), default=0)
    first = next((i for i, entry in enumerate(histogram) if entry["docs"]), len(histogram))
    if most:
        console.print("\n[dim]    tokens  documents[/]")
    for entry in histogram[first:]:
        bar = "█" * round(entry["docs"] / most * _BAR_WIDTH) or ("▏" if entry["docs"] else "")
        console.print(f"[dim]≤ {entry['up_to']:>8,}[/]  [cyan]{bar}[/] {entry['docs']:,}")


def _print_doc(console: Console, store: Store, doc: int, max_tokens: int | None = None) -> None:
    from tokpress.cli.show import plural, safe

    source, position = store.where(doc)
    ids = store.doc(doc)
    console.print(f"[dim]document {doc:,} · {plural(len(ids), 'token')} · {safe(source)} at {position:,}[/]")
    for name, value in store.kept(doc).items():
        console.print(f"[dim]{safe(name)}: {safe(value)}[/]")
    mask = store.mask(doc)
    if mask is not None:
        console.print(f"[dim]{plural(int(mask.sum()), 'token')} learned; what is not stands without a background[/]")
    shown = coloured(store, ids[:max_tokens], None if mask is None else mask[:max_tokens])
    console.print(shown if max_tokens is None or len(ids) <= max_tokens else shown.append(" …", "dim"))


def coloured(store: Store, ids: Ids, mask: Mask | None = None) -> Text:
    """Each token on a background of its own, if it is learned; a character that several tokens share stands with the last of
    them."""
    from rich.text import Text

    special = set(store.manifest.tokenizer.special_tokens.values())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    shown = Text()
    for count, token in enumerate(ids.tolist()):
        piece = decoder.decode(store.engine.token_bytes(token))
        style = "bold black on yellow" if token in special else _COLOURS[count % len(_COLOURS)]
        if mask is not None and not mask[count]:
            style = "yellow" if token in special else "bright_black" if count % 2 else "dim"
        shown.append(_visible(piece), style)
    return shown.append(_visible(decoder.decode(b"", final=True)))


def _visible(piece: str) -> str:
    """Line ends and tabs are shown and kept, other control characters shown instead."""
    from tokpress.cli.printable import printable

    return "".join(_WHITESPACE.get(char) or printable(char) for char in piece)
