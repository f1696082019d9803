"""Inputs -> units of about equal size.

In: the inputs in order and a unit's size. Out: a `Plan`. A large file is cut where its reader can start: lines at any byte,
Parquet at its row groups, Arrow at its record batches; a compressed file is one unit; small files share one. The plan
follows from inputs and options alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tokpress.config import BuildConfig, ReadConfig, TemplateConfig
from tokpress.engines.framing import Frame
from tokpress.records import TokenizerInfo
from tokpress.run.budget import MIN_BATCH_BYTES
from tokpress.sources.base import STDIN, Input, open_reader
from tokpress.store.manifest import FORMAT_VERSION, Plan, Slice
from tokpress.templates.load import reading

_MAX_FILES_A_UNIT = 10_000
_FEWEST_UNITS = 64
_MIN_UNIT_BYTES = 16 * 10**6
_MAX_UNIT_BYTES = 256 * 10**6


def make_plan(
    inputs: Sequence[Input], config: BuildConfig, info: TokenizerInfo, frame: Frame, val_below: int | None = None
) -> Plan:
    return Plan(
        format_version=FORMAT_VERSION,
        inputs=list(inputs),
        units=cut_units(inputs, config.store.unit_bytes or default_unit_bytes(inputs), reading(config)),
        options=_output_options(config, frame, val_below),
        tokenizer=info,
    )


def default_unit_bytes(inputs: Sequence[Input]) -> int:
    """Small enough that any number of workers finish at about the same time, large enough to make good shards."""
    total = sum(source.size for source in inputs)
    return min(max(total // _FEWEST_UNITS, _MIN_UNIT_BYTES), _MAX_UNIT_BYTES)


def _output_options(config: BuildConfig, frame: Frame, val_below: int | None) -> dict[str, Any]:
    """Every option that changes what is written. The engine is none of them: all engines are proved equal."""
    options: dict[str, Any] = {
        "text_field": config.read.text_field,
        "separator": config.read.separator,
        "max_doc_bytes": config.read.max_doc_bytes,
        "drop_empty": config.read.drop_empty,
        "limit": config.read.limit,
        "keep": list(config.read.keep),
        "special_tokens": config.tokenizer.special_tokens,
        "bos_id": frame.bos_id,
        "eos_id": frame.eos_id,
    }
    options.update(msgspec.to_builtins(config.store))
    if config.template != TemplateConfig():
        options["template"] = msgspec.to_builtins(config.template)
    if config.split.is_used:
        split = msgspec.to_builtins(config.split) | {"val_below": val_below}
        options["split"] = {name: value for name, value in split.items() if name != "val_inputs"}  # those are inputs
    return options


def val_below_of(plan: Plan) -> int | None:
    below: int | None = plan.options.get("split", {}).get("val_below")
    return below


def cut_units(inputs: Sequence[Input], unit_bytes: int, read: ReadConfig) -> list[list[Slice]]:
    units: list[list[Slice]] = []
    small: list[Slice] = []  # whole small files that share a unit
    small_bytes = 0
    for index, source in enumerate(inputs):
        if source.size < unit_bytes and source.path != STDIN:
            small.append(Slice(index))
            small_bytes += source.size
            if small_bytes >= unit_bytes or len(small) == _MAX_FILES_A_UNIT:
                units.append(small)
                small, small_bytes = [], 0
            continue
        if small:
            units.append(small)
            small, small_bytes = [], 0
        starts = open_reader(source, index, read, MIN_BATCH_BYTES).cuts(unit_bytes)
        units += [[Slice(index, *bounds)] for bounds in zip(starts, [*starts[1:], None], strict=True)]
    return [*units, small] if small else units
