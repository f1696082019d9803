"""The end of a run: the manifest.

In: the plan, all receipts, and how the run went. Out: a finished store. Imported ids may be wider than their vocabulary
needs: then `dtype` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tokpress.config import BuildConfig
from tokpress.documents.frame import Frame
from tokpress.documents.splits import VAL, check_names
from tokpress.records import (
    PLAN,
    REJECTS,
    TOKENIZER,
    TRAIN,
    Audit,
    Counts,
    FileEntry,
    Manifest,
    Parity,
    Plan,
    Receipt,
    RunFacts,
    Split,
    rejects_name,
)
from tokpress.storage.base import Storage
from tokpress.store.manifest import write_manifest
from tokpress.store.receipts import Receipts, receipt_files


def seal_store(
    storage: Storage,
    plan: Plan,
    config: BuildConfig,
    frame: Frame,
    receipts: Receipts,
    parity: Parity,
    run: RunFacts,
    *,
    dtype: np.dtype[Any] | None = None,
    write: Callable[[Storage, Manifest], Manifest] = write_manifest,
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
        files=_other_files(storage, shards),
        run=run,
    )
    return write(storage, manifest)


def _split(shards: list[Receipt]) -> Split:
    loss_tokens = [receipt.loss_tokens for receipt in shards if receipt.loss_tokens is not None]
    return Split(
        docs=sum(receipt.docs for receipt in shards),
        tokens=sum(receipt.tokens for receipt in shards),
        loss_tokens=sum(loss_tokens) if loss_tokens else None,
        continued=sum(receipt.continued for receipt in shards),
        truncated=sum(receipt.truncated for receipt in shards),
        shards=shards,
    )


def _other_files(storage: Storage, shards: list[Receipt]) -> dict[str, FileEntry]:
    """Everything but the token files, which the receipts cover, and the manifest, which covers itself."""
    rejects = {f"{REJECTS}/{rejects_name(receipt.unit, receipt.number)}" for receipt in shards if receipt.rejects}
    keys = [PLAN, *storage.list(TOKENIZER), *sorted(rejects)]
    others = {key: FileEntry(storage.size(key), storage.checksum(key)) for key in keys}
    return others | receipt_files(storage, shards)
