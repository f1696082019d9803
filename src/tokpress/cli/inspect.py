"""`tokpress inspect`: what is in a store, as numbers and as text with its token boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.text import Text

    from tokpress.batches import Ids
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
_COLOURS = ("on grey23", "on dark_blue", "on dark_green", "on deep_pink4", "on orange4")


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
    from rich.console import Console

    from tokpress.errors import UsageError
    from tokpress.store.reader import open_store

    opened = open_store(store, split)
    console = Console(highlight=False)
    if doc is not None:
        if not -opened.num_docs <= doc < opened.num_docs:
            raise UsageError(
                f"--doc {doc}: split {split!r} of {store} has {opened.num_docs:,} documents, 0 to {opened.num_docs - 1}."
            )
        shown: dict[str, Any] = _doc_facts(opened, doc)
    elif seq is not None:
        sequences = opened.num_tokens // seq_len
        if seq >= sequences:
            raise UsageError(
                f"--seq {seq}: split {split!r} of {store} has {sequences:,} sequences of {seq_len} tokens."
            )
        ids = opened.tokens(seq * seq_len, (seq + 1) * seq_len)
        shown = {"seq": seq, "ids": ids.tolist(), "text": opened.decode(ids)}
    else:
        shown = _store_facts(opened)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=1))
    elif doc is not None:
        console.print(
            f"[dim]document {shown['doc']:,} · {len(shown['ids']):,} tokens · {shown['source']} at {shown['position']:,}[/]"
        )
        console.print(coloured(opened, opened.doc(doc)))
    elif seq is not None:
        console.print(f"[dim]sequence {seq:,} · tokens {seq * seq_len:,} to {(seq + 1) * seq_len:,}[/]")
        console.print(coloured(opened, opened.tokens(seq * seq_len, (seq + 1) * seq_len)))
    else:
        _print_store(console, opened, shown)


def _doc_facts(store: Store, doc: int) -> dict[str, Any]:
    source, position = store.where(doc)
    ids = store.doc(doc)
    return {"doc": doc, "source": source, "position": position, "ids": ids.tolist(), "text": store.decode(ids)}


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


def _print_store(console: Any, store: Store, facts: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", justify="right")
    table.add_column()
    table.add_row("store", f"{facts['path']}, split {facts['split']} of {', '.join(facts['splits'])}")
    table.add_row(
        "tokens", f"{facts['tokens']:,} in {facts['docs']:,} documents, {facts['shards']:,} shards of {facts['dtype']}"
    )
    tokenizer = facts["tokenizer"]
    table.add_row(
        "tokenizer", f"{tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, {tokenizer['fingerprint'][:12]}"
    )
    proof = f"parity {facts['parity']}, {facts['audited_docs']:,} audited"
    table.add_row("records", f"{facts['read']:,} read, {facts['rejected']:,} rejected; {proof}")
    spread = facts["tokens_per_doc"]
    percentiles = " · ".join(f"{name} {spread[name]:,.0f}" for name in ("p50", "p90", "p99", "max"))
    table.add_row("per doc", f"mean {spread['mean']:,} · {percentiles}")
    console.print(table)
    histogram = spread["histogram"]
    first = next((i for i, entry in enumerate(histogram) if entry["docs"]), 0)
    most = max((entry["docs"] for entry in histogram), default=0)
    if most:
        console.print("\n[dim]   tokens     documents[/]")
        for entry in histogram[first:]:
            bar = "█" * round(entry["docs"] / most * 50) or ("▏" if entry["docs"] else "")
            console.print(f"[dim]≤ {entry['up_to']:>7,}[/] [cyan]{bar}[/] {entry['docs']:,}")
    for i in range(0, store.num_docs, max(store.num_docs // _SAMPLE_DOCS, 1)):
        if i // max(store.num_docs // _SAMPLE_DOCS, 1) >= _SAMPLE_DOCS:
            break
        source, position = store.where(i)
        console.print(f"\n[dim]document {i:,} · {len(store.doc(i)):,} tokens · {source} at {position:,}[/]")
        console.print(coloured(store, store.doc(i)[:_SAMPLE_TOKENS]))


def coloured(store: Store, ids: Ids) -> Text:
    """Each token on a background of its own; tokens that share a character are shown together."""
    from rich.text import Text

    special = set(store.manifest.tokenizer.special_tokens.values())
    shown = Text()
    held = b""
    for count, token in enumerate(ids.tolist()):
        held += store.engine.token_bytes(token)
        try:
            piece = held.decode()
        except UnicodeDecodeError as error:
            if error.end == len(held) and len(held) < 4:
                continue  # the rest of the character is in the next token
            piece = held.decode("utf-8", "replace")
        held = b""
        shown.append(_printable(piece), "bold black on yellow" if token in special else _COLOURS[count % len(_COLOURS)])
    return shown.append(held.decode("utf-8", "replace"))


def _printable(piece: str) -> str:
    """Control characters would move the cursor or worse; line ends are shown and kept."""
    return "".join(
        "⏎\n" if char == "\n" else "→   " if char == "\t" else char if char.isprintable() else f"\\x{ord(char):02x}"
        for char in piece
    )
