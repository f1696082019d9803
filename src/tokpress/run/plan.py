"""Inputs -> units of about equal size.

In: the inputs in order and a unit's size. Out: a `Plan`. A large file is cut where its reader can start: lines at any byte,
Parquet at its row groups, Arrow at its record batches; a compressed file is one unit; small files share one. The plan
follows from inputs and options alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tokpress.config import BuildConfig, ReadConfig
from tokpress.documents.frame import Frame
from tokpress.documents.templates import reading
from tokpress.options import output_options
from tokpress.records import FORMAT_VERSION, STDIN, Input, Plan, Slice, TokenizerInfo
from tokpress.run.budget import MIN_BATCH_BYTES
from tokpress.sources.base import open_reader

_MAX_FILES_A_UNIT = 10_000
_FEWEST_UNITS = 64
_MIN_UNIT_BYTES = 16 * 10**6
_MAX_UNIT_BYTES = 256 * 10**6


def make_plan(
    inputs: Sequence[Input], config: BuildConfig, info: TokenizerInfo, frame: Frame, val_below: int | None = None
) -> Plan:
    options = output_options(config, frame.bos_id, frame.eos_id)  # not the engine: all engines are proved equal
    if config.split.is_used:
        options["split"]["val_below"] = val_below
    return Plan(
        format_version=FORMAT_VERSION,
        inputs=list(inputs),
        units=cut_units(inputs, config.store.unit_bytes or default_unit_bytes(inputs), reading(config)),
        options=options,
        tokenizer=info,
    )


def as_planned(inputs: Sequence[Input], old: Plan | None) -> list[Input]:
    """Without their names, where a store was planned when the path of an input was hashed to split its records."""
    if old is None or any(source.name is not msgspec.UNSET for source in old.inputs):
        return list(inputs)
    return [msgspec.structs.replace(source, name=msgspec.UNSET) for source in inputs]


def default_unit_bytes(inputs: Sequence[Input]) -> int:
    """Small enough that any number of workers finish at about the same time, large enough to make good shards."""
    total = sum(source.size for source in inputs)
    return min(max(total // _FEWEST_UNITS, _MIN_UNIT_BYTES), _MAX_UNIT_BYTES)


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


def unit_bytes(plan: Plan) -> list[int]:
    """About how much of the inputs each unit has to read."""
    pieces = Counter(piece.input for unit in plan.units for piece in unit)

    def size(piece: Slice) -> int:
        source = plan.inputs[piece.input]
        if source.has_rows:
            return source.size // pieces[piece.input]
        return (source.size if piece.stop is None else piece.stop) - piece.start

    return [sum(map(size, unit)) for unit in plan.units]
