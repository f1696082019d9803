"""Which engine a run uses.

In: a tokenizer, what the user asked for, a sample of the inputs. Out: the first fast engine that takes the tokenizer and is
proved equal, else the reference; and the record of how that was found, with each fast engine that is not used and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.load import fast_engine
from tokpress.engines.parity import ALL, check_parity
from tokpress.engines.table import AUTO, fast_for, missing_for, reference_for
from tokpress.errors import ParityError, TokenizerError
from tokpress.records import Parity, TokenizerFiles


def choose_engine(
    files: TokenizerFiles,
    config: TokenizerConfig,
    reference: Engine,
    sample: Sequence[pa.LargeStringArray],
    part: slice = ALL,
    before: Callable[[], None] = lambda: None,
) -> tuple[Engine, Parity]:
    asked = config.engine
    candidates = fast_for(files.kind, asked)
    if asked not in (AUTO, reference.name) and not candidates:
        raise TokenizerError(
            f"--engine {asked} cannot be used for a {reference.name} tokenizer. Use --engine auto, or {reference.name}."
        )
    tried: list[Parity] = []
    refused: dict[str, str] = {}
    missing = missing_for(files.kind, asked)
    for spec in candidates:
        try:
            fast = fast_engine(spec.name, files, config.special_tokens, reference)
        except TokenizerError as error:
            if asked == spec.name:
                raise
            parity = Parity(outcome="unsupported", engine=reference.name, reference=reference.name, detail=str(error))
        else:
            parity = check_parity(fast, reference, sample, part, before)
            if parity.outcome == "equal":
                return fast, _recorded(parity, missing | refused, reference)
            if asked == spec.name:
                raise ParityError(
                    f"{asked} and {reference.name} encode this tokenizer differently: {parity.reason}. "
                    f"Use the reference: --engine {reference.name}"
                )
        tried.append(parity)
        refused[spec.name] = parity.reason
    none = Parity(outcome="not-needed", engine=reference.name, reference=reference.name)
    parity = tried[0] if tried else none
    # Where one differs, those that are named are said to differ.
    return reference, _recorded(parity, refused if parity.outcome == "different" else missing | refused, reference)


def _recorded(parity: Parity, refused: dict[str, str], reference: Engine) -> Parity:
    return msgspec.structs.replace(
        parity, refused=refused or msgspec.UNSET, reference_version=reference.version or msgspec.UNSET
    )


def engine_named(name: str, files: TokenizerFiles, config: TokenizerConfig, reference: Engine) -> Engine:
    """The engine that another worker chose."""
    if name == reference_for(files.kind).name:
        return reference
    return fast_engine(name, files, config.special_tokens, reference)
