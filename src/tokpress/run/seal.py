"""The end of a run: the manifest.

In: the plan, all receipts, and how the run went. Out: a finished store. Imported ids may be wider than their vocabulary
needs: then `dtype` says so.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.config import BuildConfig
from tokpress.engines.framing import Frame
from tokpress.records import Parity
from tokpress.run.output import Receipts
from tokpress.run.splits import VAL, check_names
from tokpress.store.durable import file_checksum
from tokpress.store.manifest import (
    PLAN,
    REJECTS,
    SHARDS,
    TOKENIZER,
    TRAIN,
    Audit,
    Counts,
    FileEntry,
    Manifest,
    Plan,
    Receipt,
    Split,
    write_manifest,
)


def seal_store(
    directory: Path,
    plan: Plan,
    config: BuildConfig,
    frame: Frame,
    receipts: Receipts,
    parity: Parity,
    run: dict[str, Any],
    *,
    dtype: np.dtype[Any] | None = None,
) -> Manifest:
    shards = [receipt for unit in range(len(plan.units)) for receipt in receipts[unit]]
    units = [sum((receipt.counts for receipt in receipts[unit]), Counts()) for unit in range(len(plan.units))]
    asked = {VAL} if config.split.is_used and config.split.split_field is None else set()  # it may have got nothing
    names = [TRAIN, *sorted(({receipt.split for receipt in shards} | asked) - {TRAIN})]
    check_names(names)
    splits = {name: _split([receipt for receipt in shards if receipt.split == name]) for name in names}
    reasons = sum((Counter(receipt.rejects) for receipt in shards), Counter[str]())
    audit_rate = config.check.audit_rate if parity.outcome == "equal" else 0.0
    manifest = Manifest(
        tokenizer=plan.tokenizer,
        dtype=(dtype or frame.dtype).name,
        bos_id=frame.bos_id,
        eos_id=frame.eos_id,
        special_tokens=config.tokenizer.special_tokens,
        splits=splits,
        units=units,
        totals=sum(units, Counts()),
        rejects=dict(sorted(reasons.items())),
        parity=parity,
        audit=Audit(rate=audit_rate, docs=sum(receipt.audited for receipt in shards)),
        files=_other_files(directory),
        run=run,
    )
    return write_manifest(directory, manifest)


def _split(shards: list[Receipt]) -> Split:
    learned = [receipt.learned for receipt in shards if receipt.learned is not None]
    return Split(
        docs=sum(receipt.docs for receipt in shards),
        tokens=sum(receipt.tokens for receipt in shards),
        learned=sum(learned) if learned else None,
        continued=sum(receipt.continued for receipt in shards),
        truncated=sum(receipt.truncated for receipt in shards),
        shards=shards,
    )


def _other_files(directory: Path) -> dict[str, FileEntry]:
    """Everything but the token files, which the receipts cover, and the manifest, which covers itself."""
    paths = [directory / PLAN, *sorted((directory / TOKENIZER).iterdir()), *sorted((directory / REJECTS).iterdir())]
    paths += sorted((directory / SHARDS).glob("*.json"))
    return {
        path.relative_to(directory).as_posix(): FileEntry(path.stat().st_size, file_checksum(path)) for path in paths
    }
