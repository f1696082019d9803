"""Inputs and a tokenizer, opened as a build opens them -> token batches.

In: what a user typed. Out: the inputs, and `encode`: a batch of their text as it would be stored, with BOS and EOS. The fast
engine is used only if it is proved on a sample of these inputs, and audited while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from tokpress.batches import TextBatch, TokenBatch
from tokpress.documents.frame import frame_for
from tokpress.engines.choice import choose_engine
from tokpress.engines.load import load_files, reference_engine
from tokpress.engines.parity import Auditor
from tokpress.engines.table import fast_for
from tokpress.errors import UsageError
from tokpress.live.encoder import Encoder
from tokpress.machine import usable_cores
from tokpress.options import (
    OPTIONS,
    BuildOptions,
    LiveOptions,
    PathLike,
    as_list,
    build_config,
    check_names,
    output_options,
)
from tokpress.records import STDIN
from tokpress.sources.datasets import use_dataset
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts

_SAMPLE_BYTES = 256 * 1024
_SAMPLE_DOC_BYTES = 32 * 1024


class LiveTokens:
    def __init__(
        self,
        inputs: PathLike | Sequence[PathLike],
        tokenizer: PathLike,
        options: LiveOptions,
        *,
        workers: int | None,
    ) -> None:
        check_names("LiveDataset", options, (option for option in OPTIONS if option.live))
        config = build_config(tokenizer, cast(BuildOptions, options))
        given, self.read = use_dataset(as_list(inputs), config.read)
        self._config = config = msgspec.structs.replace(config, read=self.read)
        self.max_rejects = config.check.most_rejects
        self.inputs = discover(given, self.read)
        if any(source.path == STDIN for source in self.inputs):
            raise UsageError("standard input can be read only once, and not be resumed. Save it to a file first.")
        files = load_files(config.tokenizer)
        reference = reference_engine(files, config.tokenizer.special_tokens)
        sample = sample_texts(self.inputs, self.read, total_bytes=_SAMPLE_BYTES, max_doc_bytes=_SAMPLE_DOC_BYTES)
        engine, self.parity = choose_engine(
            files, config.tokenizer, reference, list(sample) if fast_for(files.kind, config.tokenizer.engine) else []
        )
        self.encoder = Encoder(engine, workers=max(usable_cores() - 1, 1) if workers is None else workers)
        audited = engine is not reference and config.check.audit_rate > 0
        self._auditor = Auditor(engine, reference, config.check.audit_rate) if audited else None
        self.frame = frame_for(config.tokenizer, engine.info)

    def encode(self, batch: TextBatch) -> TokenBatch:
        tokens = self.encoder.encode(batch.text)
        if self._auditor is not None:
            self._auditor.check(batch, tokens)
        return self.frame.apply(tokens)

    def options(self) -> dict[str, Any]:
        """All, beside inputs and tokenizer, that decides which tokens there are."""
        return output_options(self._config, self.frame.bos_id, self.frame.eos_id, live=True)
