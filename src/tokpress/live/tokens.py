"""Inputs and a tokenizer, opened as a build opens them -> token batches.

In: what a user typed. Out: the inputs, and `encode`: a batch of their text as it would be stored, with BOS and EOS. The fast
engine is used only if it is proved on a sample of these inputs, and audited while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

import msgspec

from tokpress.api import BuildOptions, PathLike, as_list, build_config
from tokpress.batches import TextBatch, TokenBatch
from tokpress.config import SpecialTokenPolicy
from tokpress.engines.choice import choose_engine
from tokpress.engines.framing import frame_for
from tokpress.engines.load import load_files, reference_engine
from tokpress.engines.parity import Auditor
from tokpress.engines.table import fast_for
from tokpress.errors import UsageError
from tokpress.live.encoder import Encoder, Use
from tokpress.run.budget import usable_cores
from tokpress.sources.base import STDIN
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts

_SAMPLE_BYTES = 256 * 1024
_SAMPLE_DOC_BYTES = 32 * 1024


class LiveOptions(TypedDict, total=False):
    """Those options of `tokpress build` that say which tokens there are, under the same names."""

    format: str | None
    text_field: str
    separator: str | None
    max_doc_bytes: int | str
    drop_empty: bool
    limit: int | None
    engine: str
    special_tokens: SpecialTokenPolicy
    pattern: str | None
    added_tokens: Mapping[str, int]
    bos: bool
    eos: bool
    bos_token: str | None
    eos_token: str | None
    audit_rate: float
    max_rejects: str | int
    on_bad_record: Literal["skip", "stop"]


class LiveTokens:
    def __init__(
        self,
        inputs: PathLike | Sequence[PathLike],
        tokenizer: PathLike,
        options: LiveOptions,
        *,
        workers: int | None,
        use: Use,
    ) -> None:
        if unknown := options.keys() - LiveOptions.__annotations__.keys():
            raise TypeError(f"LiveDataset got an unknown option {min(unknown)!r}")
        config = build_config(tokenizer, cast(BuildOptions, options))
        self.read, self.max_rejects = config.read, config.check.max_rejects
        self.inputs = discover(as_list(inputs), config.read)
        if any(source.path == STDIN for source in self.inputs):
            raise UsageError("standard input can be read only once, and not be resumed. Save it to a file first.")
        self._special_tokens = config.tokenizer.special_tokens
        files = load_files(config.tokenizer)
        reference = reference_engine(files, config.tokenizer.special_tokens)
        sample = sample_texts(self.inputs, self.read, total_bytes=_SAMPLE_BYTES, max_doc_bytes=_SAMPLE_DOC_BYTES)
        engine, self.parity = choose_engine(
            files, config.tokenizer, reference, list(sample) if fast_for(files.kind, config.tokenizer.engine) else []
        )
        self.encoder = Encoder(
            files,
            msgspec.structs.replace(config.tokenizer, engine=engine.name),
            engine,
            workers=max(usable_cores() - 1, 1) if workers is None else workers,
            use=use,
        )
        audited = engine is not reference and config.check.audit_rate > 0
        self._auditor = Auditor(engine, reference, config.check.audit_rate) if audited else None
        self.frame = frame_for(config.tokenizer, engine.info)

    def encode(self, batch: TextBatch) -> TokenBatch:
        tokens = self.encoder.encode(batch.text, beside=True)
        if self._auditor is not None:
            self._auditor.check(batch, tokens)
        return self.frame.apply(tokens)

    def options(self) -> dict[str, Any]:
        """All, beside inputs and tokenizer, that decides which tokens there are."""
        return {
            "text_field": self.read.text_field,
            "separator": self.read.separator,
            "max_doc_bytes": self.read.max_doc_bytes,
            "drop_empty": self.read.drop_empty,
            "limit": self.read.limit,
            "special_tokens": self._special_tokens,
            "bos_id": self.frame.bos_id,
            "eos_id": self.frame.eos_id,
        }
