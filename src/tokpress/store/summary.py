"""A store in numbers.

In: a store. Out: `StoreSummary`, which is JSON as well. All of it but the lengths of documents stands in the manifest; for
these the end of every document of a split is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.records import ON_REQUEST, Audit, Manifest, Parity, RunFacts, SpecialTokenPolicy, TokenizerInfo

if TYPE_CHECKING:
    from tokpress.store.reader import Store


class SplitSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    docs: int
    tokens: int
    loss_tokens: int | None = None  # tokens that the loss masks mark; None: there are no masks
    continued: int = 0  # documents that go on with the record of the one before
    truncated: int = 0  # records that lost their end to --max-length


class LengthClass(msgspec.Struct, frozen=True, kw_only=True):
    """Documents of more than half of `up_to` tokens, and at most as many."""

    up_to: int
    docs: int


class DocLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a document."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int
    empty: int  # documents without tokens
    histogram: list[LengthClass]  # each class twice as wide as the one before

    @classmethod
    def of(cls, lengths: Int64s) -> DocLengths:
        p50, p90, p99 = np.percentile(lengths, [50, 90, 99]).tolist() if len(lengths) else (0, 0, 0)
        powers = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
        classes = np.bincount(powers).tolist() if len(lengths) else []
        return cls(
            mean=round(float(lengths.mean()), 1) if len(lengths) else 0,
            p50=p50,
            p90=p90,
            p99=p99,
            max=int(lengths.max(initial=0)),
            empty=int((lengths == 0).sum()),
            histogram=[LengthClass(up_to=2**power, docs=docs) for power, docs in enumerate(classes)],
        )


class StoreSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One split of a store (docs, tokens, shards, lengths), and what is true of all of it."""

    path: str  # as a user names it
    split: str
    splits: dict[str, SplitSummary]
    docs: int
    tokens: int
    loss_tokens: int | None  # None: the store has no loss masks
    shards: int
    dtype: str
    tokenizer: TokenizerInfo
    bos_id: int | None  # that the build put before each document
    eos_id: int | None  # and after it
    read: int  # records, in all splits: read = written + rejected
    written: int
    rejected: int
    rejects: dict[str, int]  # by reason
    parity: str  # outcome of the proof: equal, different, unsupported, or not-needed
    audited_docs: int
    fingerprint: str
    special_tokens: SpecialTokenPolicy  # the policy for literals in text
    proof: Parity
    audit: Audit
    run: RunFacts
    tokens_per_doc: DocLengths | None = None  # of this split; None: they were not asked for

    @property
    def bad_records(self) -> int:
        """Rejects that count for `--max-rejects`."""
        return self.rejected - sum(self.rejects.get(reason, 0) for reason in ON_REQUEST)

    @property
    def all_tokens(self) -> int:
        """In all splits."""
        return sum(split.tokens for split in self.splits.values())

    @property
    def all_loss_tokens(self) -> int | None:
        """In all splits; None: the store has no loss masks."""
        loss_tokens = [split.loss_tokens for split in self.splits.values() if split.loss_tokens is not None]
        return sum(loss_tokens) if loss_tokens else None


def summarize(store: Store, *, lengths: bool = True) -> StoreSummary:
    manifest = store.manifest
    mine = manifest.splits[store.split_name]
    return StoreSummary(
        path=store.url,
        split=store.split_name,
        splits=_splits(manifest),
        docs=store.num_docs,
        tokens=store.num_tokens,
        loss_tokens=mine.loss_tokens,
        shards=len(mine.shards),
        dtype=manifest.dtype,
        tokenizer=manifest.tokenizer,
        bos_id=manifest.bos_id,
        eos_id=manifest.eos_id,
        read=manifest.totals.read,
        written=manifest.totals.written,
        rejected=manifest.totals.rejected,
        rejects=manifest.rejects,
        parity=manifest.parity.outcome,
        audited_docs=manifest.audit.docs,
        fingerprint=manifest.fingerprint,
        special_tokens=manifest.special_tokens,
        proof=manifest.parity,
        audit=manifest.audit,
        run=manifest.run,
        tokens_per_doc=DocLengths.of(store.doc_lengths()) if lengths else None,
    )


def _splits(manifest: Manifest) -> dict[str, SplitSummary]:
    return {
        name: SplitSummary(
            docs=split.docs,
            tokens=split.tokens,
            loss_tokens=split.loss_tokens,
            continued=split.continued,
            truncated=split.truncated,
        )
        for name, split in manifest.splits.items()
    }
