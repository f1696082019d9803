"""`load_pretokenized_dataset`: (input_ids, target_ids) pairs for a loop that used to call a tokenizer.

In: a store. Out: for each sequence the ids and, shifted by one, the ids to predict. It can be gone through any number of
times; with `shuffle`, in a new order each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np

from tokpress.loader.dataset import Output, PretokenizedDataset
from tokpress.loader.loader import Loader
from tokpress.loader.memory.stream import Verify
from tokpress.loader.order.permutation import derive_keys
from tokpress.packing import PackingOptions
from tokpress.store.reader import Store

Pair = tuple[Any, Any]  # arrays or tensors
_READ_TOGETHER = 32  # sequences


def load_pretokenized_dataset(
    path: Store | str | os.PathLike[str],
    *,
    seq_len: int,
    method: str = "concat",
    split: str = "train",
    shuffle: bool | str = False,
    seed: int = 0,
    output: Output = "auto",
    verify: Verify = "size",
    **packing_options: Unpack[PackingOptions],
) -> Pairs:
    """All sequences of a store as (input_ids, target_ids); targets that do not count are -100.

    `path`: a store. `method`, `split`, `output`, `verify` and `packing_options` are those of `PretokenizedDataset`.
    `shuffle`: over the whole split, by `seed`.

        for input_ids, target_ids in tokpress.load_pretokenized_dataset("tokens", seq_len=2048):
            ...
    """
    data = PretokenizedDataset(
        path,
        seq_len=seq_len,
        method=method,
        split=split,
        shift_labels=True,
        output=output,
        verify=verify,
        **packing_options,
    )
    return Pairs(data, shuffle=shuffle, seed=seed)


class Pairs:
    """`len` of them; each `iter` starts from the first again, shuffled anew if they are shuffled."""

    def __init__(self, data: PretokenizedDataset, *, shuffle: bool | str = False, seed: int = 0) -> None:
        self.data = data
        self._shuffle = shuffle
        self._seed = seed
        self._passes = 0

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Pair]:
        loader = Loader(
            self.data,
            batch_size=_READ_TOGETHER,
            shuffle=self._shuffle,
            seed=self._seed_of_pass(),
            drop_last=False,
        )
        self._passes += 1
        for batch in loader:
            yield from zip(batch["input_ids"], batch["labels"], strict=True)

    def _seed_of_pass(self) -> int:
        """The first pass is in the order that a `Loader` with this seed has; no later one is another seed's first."""
        if not self._passes:
            return self._seed
        return int(derive_keys("pass", self._seed, self._passes, count=1)[0] >> np.uint64(1))
