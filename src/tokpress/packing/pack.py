"""`tokpress.pack`: what a packing wastes, and its plan where it needs one.

In: a store and a length. Out: the `Waste` report; best-fit leaves a plan in the store. A plan that is there already, matches
the store and is whole is kept.
"""

from __future__ import annotations

import os
from typing import Unpack

from tokpress.errors import StoreError
from tokpress.packing import PackingOptions, check_options, open_packing
from tokpress.packing.bestfit import METHOD as BESTFIT
from tokpress.packing.bestfit import plan_key
from tokpress.packing.plan import StoredPlan, plan_storage
from tokpress.packing.planner import Progress, write_plan
from tokpress.packing.waste import Waste
from tokpress.store.reader import Store, open_store


def pack(
    store: Store | str | os.PathLike[str],
    *,
    seq_len: int,
    method: str = "concat",
    split: str = "train",
    progress: Progress | None = None,
    **options: Unpack[PackingOptions],
) -> Waste:
    """What sequences of `seq_len` tokens cost: padding, truncation, documents cut. Writes a plan where one is needed.

    `store`: one that is open, or its path. `method`: concat, bestfit or pad, with their `options`. `split`: of this
    one. `progress` hears what is being done, and how much of it is.

        waste = tokpress.pack("tokens", seq_len=2048, method="bestfit")
        waste.sequences, waste.padding_share
    """
    opened = store.split(split) if isinstance(store, Store) else open_store(store, split)
    check_options(method, options)
    if method != BESTFIT:
        return open_packing(opened, seq_len=seq_len, method=method, **options).waste()
    long_docs = options.get("long_docs", "split")
    key = plan_key(opened, seq_len=seq_len, long_docs=long_docs)
    try:
        plan = StoredPlan(opened, key)
        plan.check()
    except StoreError:  # there is none, or none that can be used
        with plan_storage(opened.storage, key).lock():
            return write_plan(opened, seq_len=seq_len, long_docs=long_docs, progress=progress)
    return plan.index.waste
