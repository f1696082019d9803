"""The Python front door: the command line's options as keywords, and the same results.

In: paths and options. Out: a `Store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from tokpress.options import BuildOptions, PathLike, as_list, build_config
from tokpress.reference import documented
from tokpress.run.coordinator import build_store, make_job
from tokpress.run.events import Listener
from tokpress.run.messages import Prepared
from tokpress.storage import open_storage
from tokpress.store.reader import Store, open_store

if TYPE_CHECKING:
    from tokpress.run.projection import Projection


@documented
def build(
    inputs: PathLike | Sequence[PathLike],
    *,
    tokenizer: PathLike,
    out: PathLike,
    overwrite: bool = False,
    reporter: Listener | None = None,
    **options: Unpack[BuildOptions],
) -> Store:
    """Tokenize `inputs` into a store at `out`; called again, it goes on where it was stopped.

    `inputs`: files, directories, globs, or "-" for standard input. `tokenizer`: tokenizer.json, a directory with one,
    SentencePiece .model, rank file, name of a tiktoken encoding, hub id, or "bytes". `out`: directory of the store.
    `overwrite`: replace a store that is there already. `reporter` hears what happens, as
    typed events (docs/events.md): a function, or anything with `on(event)`; `tokpress.events.join` makes one of several.

    The options are those of `tokpress build`; None is the default, sizes are bytes or like "4GB".
    """
    return build_store(as_list(inputs), out, build_config(tokenizer, options), overwrite=overwrite, reporter=reporter)


def dry_run(
    inputs: PathLike | Sequence[PathLike], *, tokenizer: PathLike, out: PathLike, **options: Unpack[BuildOptions]
) -> tuple[Prepared, Projection]:
    """What `build` would take: time, disk and memory, from a small piece of the inputs."""
    from tokpress.run.projection import project

    storage = open_storage(out)
    return project(make_job(as_list(inputs), storage, build_config(tokenizer, options)), storage)


def open(path: PathLike, split: str = "train") -> Store:  # noqa: A001 - called as tokpress.open
    """A finished store, memory-mapped."""
    return open_store(path, split)
