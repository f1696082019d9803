"""What each packing of a store would waste.

In: an open store and a length. Out: `PackingView`s: the plans that the store has already, and the methods that need none. A
small store is counted; of a large one the lengths of a sample of documents stand for all.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import StoreError
from tokpress.packing import open_packing
from tokpress.packing.base import check_seq_len
from tokpress.packing.plan import INDEX, PlanIndex
from tokpress.packing.waste import Waste, fill_classes
from tokpress.records import PACKS
from tokpress.store.manifest import read_record
from tokpress.store.reader import Store
from tokpress.view.sampling import SAMPLE_DOCS, sampled_lengths

_MOST_PLANS = 50


class PackingView(msgspec.Struct, frozen=True, kw_only=True):
    stored: bool  # a plan that the store has
    looked_at: int  # documents; fewer than the split has: the waste is an estimate
    efficiency: float  # share of positions that hold a token
    waste: Waste


def view_packings(store: Store, *, seq_len: int, most: int = SAMPLE_DOCS) -> list[PackingView]:
    """Concat and pad with sequences of `seq_len` tokens, and every best-fit plan of this split, whatever its length."""
    check_seq_len(seq_len)
    if store.num_docs <= most:
        wastes = [open_packing(store, seq_len=seq_len, method=method).waste() for method in ("concat", "pad")]
        looked_at = store.num_docs
    else:
        lengths = sampled_lengths(store, most)
        wastes = [_concat(store, seq_len, lengths), _pad(store, seq_len, lengths)]
        looked_at = len(lengths)
    planned = [_view(waste, stored=True, looked_at=waste.docs) for waste in _stored(store)]
    return [*(_view(waste, stored=False, looked_at=looked_at) for waste in wastes), *planned]


def _view(waste: Waste, *, stored: bool, looked_at: int) -> PackingView:
    return PackingView(stored=stored, looked_at=looked_at, efficiency=round(waste.efficiency, 6), waste=waste)


def _stored(store: Store) -> list[Waste]:
    found = []
    for name in store.storage.children(PACKS)[:_MOST_PLANS]:
        key = f"{PACKS}/{name}/{INDEX}"
        try:
            index = read_record(store.storage, key, PlanIndex) if store.storage.exists(key) else None
        except StoreError:  # for `tokpress verify` to say
            continue
        if index is not None and index.key.split == store.split_name and index.key.fingerprint == store.fingerprint:
            found.append(index.waste)
    return found


def _concat(store: Store, seq_len: int, lengths: Int64s) -> Waste:
    """A document of n tokens, put anywhere, is cut with a probability of (n - 1) / seq_len."""
    sequences, left = divmod(store.num_tokens, seq_len)
    cut = np.minimum(np.maximum(lengths - 1, 0) / seq_len, 1.0)
    of_all = store.num_docs / max(len(lengths), 1)
    return Waste(
        method="concat",
        seq_len=seq_len,
        split=store.split_name,
        docs=store.num_docs,
        tokens=store.num_tokens,
        sequences=sequences,
        padding=0,
        truncated_tokens=left,
        docs_cut=round(float(cut.sum()) * of_all),
        docs_cut_that_fit=round(float(cut[lengths <= seq_len].sum()) * of_all),
        fill=fill_classes(np.array([seq_len]), seq_len, np.array([sequences])).tolist(),
    )


def _pad(store: Store, seq_len: int, lengths: Int64s) -> Waste:
    held = np.minimum(lengths, seq_len)
    of_all = store.num_docs / max(len(lengths), 1)
    kept = min(round(float(held.sum()) * of_all), store.num_tokens, store.num_docs * seq_len)
    return Waste(
        method="pad",
        seq_len=seq_len,
        split=store.split_name,
        docs=store.num_docs,
        tokens=store.num_tokens,
        sequences=store.num_docs,
        padding=store.num_docs * seq_len - kept,
        truncated_tokens=store.num_tokens - kept,
        docs_cut=round(float((lengths > seq_len).sum()) * of_all),
        fill=np.round(fill_classes(held, seq_len) * of_all).astype(np.int64).tolist(),
    )
