"""`make_dataloader`: a torch `DataLoader` over a store, for loops that have one already.

In: a store or a dataset. Out: a `DataLoader` whose workers read whole batches, in the same global order
as `Loader`'s, each rank its part. With `stateful` it is torchdata's `StatefulDataLoader`, which can be resumed. `Loader`
does the same without processes, and goes on with other ranks and batch sizes, too: prefer it where you can.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.loader.batches.make import Batch
from tokpress.loader.dataset import PretokenizedDataset, no_sequences
from tokpress.loader.order.shuffle import Order, make_order, parse_shuffle
from tokpress.loader.order.steps import Sharing
from tokpress.storage.lost_pages import install
from tokpress.store.reader import Store

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

_BLOCK_SAMPLES = 256


def make_dataloader(
    data: PretokenizedDataset | Store | str | os.PathLike[str],
    *,
    batch_size: int,
    seq_len: int | None = None,
    shuffle: bool | str = True,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = True,
    num_workers: int = 2,
    prefetch_factor: int = 4,
    pin_memory: bool | None = None,
    stateful: bool = False,
    **dataset_options: Any,
) -> DataLoader[Any]:
    """One epoch of a store at a time. `dataset_options` are those of `PretokenizedDataset`, if `data` is not one yet.

    Workers stay alive between epochs; memory is pinned where there is a GPU. `loader.sampler.set_epoch(n)` gives epoch n
    its order; going through the loader once more takes the next one by itself. `stateful`: with `state_dict()` and
    `load_state_dict()`, which goes on at once: no batch is made again to get there.

    `shuffle` and `seed` choose the order, `rank` and `world_size` this process's part of it. `drop_last`: leave out
    what does not fill the last batch. `num_workers`, `prefetch_factor` and `pin_memory` are those of torch's
    `DataLoader`.

        loader = tokpress.make_dataloader("tokens", seq_len=2048, batch_size=16, num_workers=0, stateful=True)
        for batch in loader:
            batch["input_ids"], batch["labels"]
        state = loader.state_dict()
    """
    try:
        import torch
    except ImportError as error:
        raise UsageError("make_dataloader needs torch. Install it: pip install 'tokpress[torch]'") from error
    dataset = _dataset(data, seq_len, dataset_options)
    dataset.stream.expect(scattered=shuffle is True)
    steps = StepSampler(
        len(dataset),
        Sharing(batch_size=batch_size, rank=rank, world_size=world_size),
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
    )
    loader = _loader_class(stateful=stateful)(
        Batches(dataset),  # type: ignore[arg-type] # it has what a map-style dataset needs
        batch_sampler=steps,  # not `sampler` with batch_size=None: accelerate makes a loader anew, and loses that one
        collate_fn=_as_it_is,
        num_workers=num_workers,
        worker_init_fn=_in_worker,
        persistent_workers=num_workers > 0,
        prefetch_factor=prefetch_factor if num_workers else None,
        pin_memory=torch.cuda.is_available() if pin_memory is None else pin_memory,
    )
    loader.__dict__["sampler"] = steps  # trainers call `loader.sampler.set_epoch`; what torch puts there is not used
    return loader


def _as_it_is(batch: Any) -> Any:
    return batch


def _in_worker(_: int) -> None:
    """A file that shrinks is an error there, too: torch has just said that a bus error is about shared memory."""
    install()


def _loader_class(*, stateful: bool) -> type[DataLoader[Any]]:
    if not stateful:
        from torch.utils.data import DataLoader

        return DataLoader
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError as error:
        raise UsageError("stateful=True needs torchdata. Install it: pip install torchdata") from error
    kind: type[DataLoader[Any]] = StatefulDataLoader
    return kind


class Batches:
    """A dataset whose items are whole batches, for a sampler that gives the sequences of each."""

    def __init__(self, data: PretokenizedDataset) -> None:
        self.data = data

    def __getitem__(self, sequences: list[int]) -> Batch:
        return self.data.batch(sequences)

    def __getitems__(self, sequences: list[int]) -> Batch:
        return self.data.batch(sequences)

    def __len__(self) -> int:
        """Sequences, not batches: trainers take the length of a loader's dataset for its number of samples."""
        return len(self.data)


class StepSampler:
    """The sequences of each of this rank's batches, an epoch at a time."""

    def __init__(self, count: int, sharing: Sharing, *, shuffle: bool | str, seed: int, drop_last: bool) -> None:
        self._count = count
        self._sharing = sharing
        self._shuffle = parse_shuffle(shuffle)
        self._seed = seed
        self.drop_last = drop_last
        self.batch_size = sharing.batch_size  # accelerate asks for it
        self.epoch = 0  # that the next pass has

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        whole, rest = divmod(self._count, self._sharing.step_samples)
        part = self._sharing.own(rest)
        return whole + int(not self.drop_last and part.stop > part.start)

    def __iter__(self) -> StepIterator:
        return StepIterator(self)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]

    def order(self, epoch: int) -> Order:
        return make_order(self._shuffle, self._count, self._seed, "data", epoch, block_samples=_BLOCK_SAMPLES)

    def samples(self, step: int) -> Int64s:
        """This rank's part of a step, as positions in the epoch's order."""
        size = self._sharing.step_samples
        own = self._sharing.own(min(size, self._count - step * size))
        return np.arange(step * size + own.start, step * size + own.stop)


class StepIterator:
    """One pass of a sampler. It begins with its first step, not before: a loader may make an iterator and drop it. From
    then on its epoch is its own: `set_epoch` is about the passes that come.

    `state_dict` and `load_state_dict` are torchdata's convention: it keeps them, and the sampler's, with every batch.
    """

    def __init__(self, sampler: StepSampler) -> None:
        self._sampler = sampler
        self._step = 0
        self._epoch: int | None = None  # None: this pass has not begun
        self._order: Order | None = None

    def __iter__(self) -> StepIterator:
        return self

    def __next__(self) -> list[int]:
        if self._order is None:
            self._order = self._sampler.order(self._begin())
        if self._step == len(self._sampler):
            raise StopIteration
        sequences: list[int] = self._order.samples(self._sampler.samples(self._step)).tolist()
        self._step += 1
        return sequences

    def _begin(self) -> int:
        if self._epoch is None:
            self._epoch = self._sampler.epoch
            self._sampler.epoch += 1
        return self._epoch

    def state_dict(self) -> dict[str, int | None]:
        return {"step": self._step, "epoch": self._epoch}

    def load_state_dict(self, state: dict[str, int | None]) -> None:
        self._step, self._order = state["step"] or 0, None
        # States of version 0.1.0 have no epoch: there it was the sampler's, which is loaded before.
        self._epoch = state.get("epoch", self._sampler.epoch - 1 if self._step else None)


def _dataset(
    data: PretokenizedDataset | Store | str | os.PathLike[str], seq_len: int | None, options: dict[str, Any]
) -> PretokenizedDataset:
    if isinstance(data, PretokenizedDataset):
        if seq_len is not None or options:
            raise UsageError(
                "seq_len and the options of a dataset are already in the dataset that you gave. Leave them out."
            )
        dataset = data
    elif seq_len is None:
        raise UsageError("make_dataloader needs a seq_len, like 2048.")
    else:
        dataset = PretokenizedDataset(data, seq_len=seq_len, **options)
    if not len(dataset):
        raise no_sequences(dataset)
    return dataset
