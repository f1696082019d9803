"""Which engine a run uses.

In: a tokenizer, what the user asked for, a sample of the inputs. Out: the fast engine if it is supported and proved equal,
else the reference; and the record of how that was found.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine, TokenizerFiles
from tokpress.engines.load import FAST_KINDS, fast_engine
from tokpress.engines.parity import ALL, check_parity
from tokpress.errors import ParityError, TokenizerError
from tokpress.records import Parity

FAST = "gigatoken"


def choose_engine(
    files: TokenizerFiles,
    config: TokenizerConfig,
    reference: Engine,
    sample: Sequence[pa.LargeStringArray],
    part: slice = ALL,
) -> tuple[Engine, Parity]:
    asked = config.engine
    if asked not in ("auto", FAST, reference.name):
        raise TokenizerError(
            f"--engine {asked} cannot be used for a {reference.name} tokenizer. Use --engine auto, or {reference.name}."
        )
    if asked == reference.name or (asked == "auto" and files.kind not in FAST_KINDS):
        return reference, Parity(outcome="not-needed", engine=reference.name, reference=reference.name)
    try:
        fast = fast_engine(files, config.special_tokens, reference.info, reference)
    except TokenizerError as error:
        if asked == FAST:
            raise
        return reference, Parity(
            outcome="unsupported", engine=reference.name, reference=reference.name, detail=str(error)
        )
    parity = check_parity(fast, reference, sample, part)
    if parity.outcome == "equal":
        return fast, parity
    if asked == FAST:
        raise ParityError(
            f"gigatoken and {reference.name} encode this tokenizer differently: {parity.difference}. "
            f"Use the reference: --engine {reference.name}"
        )
    return reference, parity


def engine_named(name: str, files: TokenizerFiles, config: TokenizerConfig, reference: Engine) -> Engine:
    """The engine that another worker chose."""
    if name != FAST:
        return reference
    return fast_engine(files, config.special_tokens, reference.info, reference)
