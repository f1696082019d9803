"""The Python front door: the command line's options as keywords, and the same results.

In: paths and options. Out: a `Store`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tokpress.config import (
    BuildConfig,
    CheckConfig,
    EngineChoice,
    ReadConfig,
    Resources,
    SpecialTokenPolicy,
    StoreConfig,
    TokenizerConfig,
    parse_size,
)
from tokpress.run.coordinator import build_store
from tokpress.run.progress import Reporter
from tokpress.store.reader import Store, open_store

PathLike = str | os.PathLike[str]


def build(
    inputs: PathLike | Sequence[PathLike],
    *,
    tokenizer: PathLike,
    out: PathLike,
    format: str | None = None,  # noqa: A002 - the option's name everywhere
    text_field: str = "text",
    separator: str | None = None,
    max_doc_bytes: int | str = ReadConfig().max_doc_bytes,
    engine: EngineChoice = "auto",
    special_tokens: SpecialTokenPolicy = "text",
    pattern: str | None = None,
    added_tokens: Mapping[str, int] | None = None,
    bos: bool = False,
    eos: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    audit_rate: float = CheckConfig().audit_rate,
    max_rejects: str = CheckConfig().max_rejects,
    unit_size: int | str = StoreConfig().unit_bytes,
    shard_size: int | str = StoreConfig().shard_bytes,
    workers: int | None = None,
    batch_bytes: int | str = Resources().batch_bytes,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Store:
    """Tokenize `inputs` into a store at `out`. See `tokpress build --help` for what each option means."""
    config = BuildConfig(
        tokenizer=TokenizerConfig(
            spec=os.fspath(tokenizer),
            engine=engine,
            special_tokens=special_tokens,
            pattern=pattern,
            added_tokens=dict(added_tokens or {}),
            bos=bos,
            eos=eos,
            bos_token=bos_token,
            eos_token=eos_token,
        ),
        read=ReadConfig(
            format=format, text_field=text_field, separator=separator, max_doc_bytes=parse_size(max_doc_bytes)
        ),
        store=StoreConfig(unit_bytes=parse_size(unit_size), shard_bytes=parse_size(shard_size)),
        check=CheckConfig(audit_rate=audit_rate, max_rejects=max_rejects),
        resources=Resources(workers=workers, batch_bytes=parse_size(batch_bytes)),
    )
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    return build_store(paths, out, config, overwrite=overwrite, reporter=reporter)


def open(path: PathLike, split: str = "train") -> Store:  # noqa: A001 - called as tokpress.open
    """A finished store, memory-mapped."""
    return open_store(path, split)
