"""Stores that show what a page has to cope with: hostile text, scripts, masks, splits, long documents."""

from __future__ import annotations

import json
from pathlib import Path

import tokpress

HOSTILE = [
    "<script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    "</div></main><svg onload=window.hacked=1>",
    "${window.hacked = 1} {{constructor.constructor('window.hacked=1')()}} `#{7*7}`",
    "javascript:window.hacked=1 data:text/html,<script>window.hacked=1</script>",
    "\u202ereversed\u202c and \u2066isolated\u2069 \u200bzero width",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "nul \0 inside, \x7f and \x85",
    "&lt;already escaped&gt; &amp; \" ' <!-- comment",
]
ARABIC = "اللغة العربية تكتب من اليمين إلى اليسار، والحروف متصلة. English inside. " * 3
EMOJI = "Family 👩‍👩‍👧‍👦, flag 🏳️‍🌈 🇩🇪, thumbs 👍🏽. Combining é ñ ạ̈ and हिन्दी क्षि."
PLAIN = [f"Document {i} tells of number {i}. " * (i % 7 + 1) for i in range(60)]


def write(path: Path, records: list[dict[str, object]], *more: str) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + "".join(more), "utf-8")
    return path


def plain(directory: Path, tokenizer: Path | str) -> Path:
    """Plain text, hostile text, other scripts; two inputs, kept fields, two splits, rejects."""
    texts = [*PLAIN, *HOSTILE, ARABIC, EMOJI]
    first = write(
        directory / "a.jsonl", [{"text": text, "id": f"a{i}"} for i, text in enumerate(texts)], "<b>not json\n"
    )
    second = write(
        directory / "b.jsonl", [{"text": f"second {i}", "id": "<i>x</i>"} for i in range(20)], '{"no": "text"}\n'
    )
    out = directory / "plain"
    return tokpress.build(
        [first, second], tokenizer=tokenizer, out=out, keep=["id"], val_fraction=0.2, split_seed=1
    ).path


def masked(directory: Path, tokenizer: Path | str) -> Path:
    records: list[dict[str, object]] = [{"q": f"What is {i} + {i}?", "a": f" It is {2 * i}."} for i in range(40)]
    source = write(directory / "qa.jsonl", records)
    out = directory / "masked"
    return tokpress.build(source, tokenizer=tokenizer, out=out, prompt_field="q", completion_field="a").path


def long(directory: Path, tokenizer: Path | str) -> Path:
    """One document of 5 MB, between two short ones."""
    text = "".join(f"line {i} of a long document, {EMOJI}\n" for i in range(40_000))[:5_000_000]
    source = write(directory / "long.jsonl", [{"text": "before"}, {"text": text}, {"text": "after"}])
    return tokpress.build(source, tokenizer=tokenizer, out=directory / "long").path
