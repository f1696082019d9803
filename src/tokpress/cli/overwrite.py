"""`--overwrite` says what it deletes; at a terminal it asks first.

In: where a store is to be written. Out: nothing, or an error if the user says no. What is no store is refused later, by
whoever writes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


def confirm_overwrite(out: str, console: Console) -> None:
    from tokpress.cli.printable import printable
    from tokpress.cli.show import safe
    from tokpress.errors import UsageError

    what = _what_is_there(out)
    if what is None:
        return
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):  # nobody is there to answer
        console.print(f"[dim]{'overwrite':>10}[/]  deletes {safe(what)}")
    elif not click.confirm(f"--overwrite deletes {printable(what)}. Go on?", err=True):
        raise UsageError(
            "nothing was deleted. Choose another --out, or leave out --overwrite to go on with what is there."
        )


def _what_is_there(out: str) -> str | None:
    """The store as its owner would know it."""
    from tokpress.cli.show import plural
    from tokpress.records import MANIFEST, Manifest
    from tokpress.storage import open_storage
    from tokpress.store.manifest import find_record
    from tokpress.store.unfinished import stored_plan

    storage = open_storage(out)
    manifest = find_record(storage, MANIFEST, Manifest)
    if manifest is not None:
        tokens = sum(split.tokens for split in manifest.splits.values())
        docs = sum(split.docs for split in manifest.splits.values())
        return f"the finished store {out}: {plural(docs, 'document')}, {plural(tokens, 'token')}, and its packs"
    return None if stored_plan(storage) is None else f"the unfinished store {out}"
