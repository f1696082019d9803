"""What a notebook shows for a store.

In: a store. Out: HTML, from the manifest alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokpress.drawing import bars, facts, notebook

if TYPE_CHECKING:
    from tokpress.store.reader import Store


def store_html(store: Store) -> str:
    summary = store.summary(lengths=False)
    rows: list[tuple[str, object]] = [
        ("path", summary.path),
        ("tokens", f"{summary.tokens:,} ({summary.dtype}) in {summary.docs:,} documents, split {summary.split}"),
        ("tokenizer", f"{summary.tokenizer.kind}, {summary.tokenizer.vocab_size:,} tokens"),
        ("records", f"{summary.read:,} read = {summary.written:,} written + {summary.rejected:,} rejected"),
        ("proof", f"parity {summary.parity}, {summary.audited_docs:,} documents audited"),
    ]
    if summary.loss_tokens is not None:
        rows.append(("in the loss", f"{summary.loss_tokens:,} tokens"))
    splits = [(name, split.tokens, f"{split.tokens:,} tokens") for name, split in summary.splits.items()]
    rejects = [(reason, count, f"{count:,}") for reason, count in summary.rejects.items()]
    more = [bars(splits)] if len(splits) > 1 else []
    more += [bars(rejects)] if rejects else []
    return notebook(f"Store {summary.path.rstrip('/').rpartition('/')[2]}", facts(rows), *more)
