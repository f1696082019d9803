"""A torch DataLoader over a store: real worker processes, whole batches, each rank its part."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.loader.order.steps import Sharing
from tokpress.loader.torch_data import StepSampler

from .conftest import SEQ_LEN


def rows_of(loader: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in loader for row in batch["input_ids"].tolist()]


def all_rows(store: tokpress.Store) -> Counter[tuple[int, ...]]:
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, output="numpy")
    return Counter(tuple(data[i]["input_ids"].tolist()) for i in range(len(data)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_sequence_once_an_epoch_in_a_new_order(store: tokpress.Store, num_workers: int) -> None:
    loader = tokpress.make_dataloader(
        store.path, seq_len=SEQ_LEN, batch_size=8, drop_last=False, num_workers=num_workers
    )
    first, second = rows_of(loader), rows_of(loader)
    assert Counter(first) == Counter(second) == all_rows(store)
    assert first != second
    loader.sampler.set_epoch(0)  # type: ignore[attr-defined]
    assert rows_of(loader) == first
    assert len(loader) == -(-len(first) // 8)


def test_defaults_are_right(store: tokpress.Store) -> None:
    loader = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8)
    assert isinstance(loader, DataLoader)
    assert loader.num_workers == 2
    assert loader.persistent_workers
    assert loader.pin_memory is torch.cuda.is_available()
    batch = next(iter(loader))
    assert batch["input_ids"].shape == batch["labels"].shape == (8, SEQ_LEN)
    assert batch["input_ids"].dtype == torch.int64


def test_workers_may_be_spawned(store: tokpress.Store) -> None:
    made = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0)
    spawned = DataLoader(
        made.dataset,
        sampler=made.sampler,
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    made.sampler.set_epoch(0)  # type: ignore[attr-defined]
    first = rows_of(made)
    made.sampler.set_epoch(0)  # type: ignore[attr-defined]
    assert rows_of(spawned) == first


def test_the_order_is_the_loader_s(store: tokpress.Store) -> None:
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
    theirs = tokpress.make_dataloader(data, batch_size=8, num_workers=0, seed=3)
    assert rows_of(theirs) == rows_of(tokpress.Loader(data, batch_size=8, seed=3))


@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_an_epoch(store: tokpress.Store, drop_last: bool) -> None:
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
    ranks = [
        tokpress.make_dataloader(data, batch_size=4, num_workers=0, rank=rank, world_size=3, drop_last=drop_last)
        for rank in range(3)
    ]
    seen = Counter(row for rank in ranks for row in rows_of(rank))
    assert seen.total() == (len(data) // 12 * 12 if drop_last else len(data))
    assert seen <= all_rows(store)


def test_a_rank_for_which_nothing_is_left_makes_no_step() -> None:
    """Rather than one without a sequence, whose loss would be no number."""
    ranks = [
        StepSampler(9, Sharing(batch_size=2, rank=rank, world_size=2), shuffle=False, seed=0, drop_last=False)
        for rank in range(2)
    ]
    assert [list(rank) for rank in ranks] == [[[0, 1], [4, 5]], [[2, 3], [6, 7], [8]]]
    assert [len(rank) for rank in ranks] == [2, 3]


def test_a_plain_dataloader_takes_the_dataset(store: tokpress.Store) -> None:
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
    plain: DataLoader[Any] = DataLoader(data, batch_size=4)  # type: ignore[arg-type]
    assert torch.equal(next(iter(plain))["input_ids"], data.batch([0, 1, 2, 3])["input_ids"])
    assert [len(batch["labels"]) for batch in plain] == [4] * (len(data) // 4) + [len(data) % 4] * (len(data) % 4 > 0)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata 0.11 calls
class TestStateful:
    """torchdata's loader, which saves where the sampler was when the batch in hand was asked for."""

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.parametrize("delivered", [0, 1, 5])
    def test_goes_on_with_the_very_next_batch(self, store: tokpress.Store, num_workers: int, delivered: int) -> None:
        def made() -> Any:
            return tokpress.make_dataloader(
                store.path, seq_len=SEQ_LEN, batch_size=8, num_workers=num_workers, stateful=True
            )

        whole = made()
        first, second = rows_of(whole), rows_of(whole)
        interrupted = made()
        batches = iter(interrupted)
        seen = [tuple(row) for _ in range(delivered) for row in next(batches)["input_ids"].tolist()]
        state = interrupted.state_dict()
        resumed = made()
        resumed.load_state_dict(state)
        assert seen + rows_of(resumed) == first
        assert rows_of(resumed) == second

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.parametrize("named", [0, 7])
    def test_an_epoch_that_is_set_does_not_touch_a_pass_under_way(
        self, store: tokpress.Store, num_workers: int, named: int
    ) -> None:
        """Lightning makes the iterator of a loader that goes on, then names the epoch, then takes a batch."""

        def made() -> Any:
            return tokpress.make_dataloader(
                store.path, seq_len=SEQ_LEN, batch_size=8, num_workers=num_workers, stateful=True
            )

        whole = made()
        epochs = [rows_of(whole), rows_of(whole)]
        interrupted = made()
        batches = iter(interrupted)
        seen = [tuple(row) for _ in range(3) for row in next(batches)["input_ids"].tolist()]
        resumed = made()
        resumed.load_state_dict(interrupted.state_dict())
        batches = iter(resumed)
        resumed.sampler.set_epoch(named)
        assert seen + rows_of(batches) == epochs[0]
        whole.sampler.set_epoch(named)
        assert rows_of(resumed) == rows_of(whole)

    def test_a_state_of_version_0_1_0_is_understood(self, store: tokpress.Store) -> None:
        """It kept the epoch with the sampler alone."""
        sampler: Any = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0).sampler
        first = list(sampler)
        sampler.load_state_dict({"epoch": 1})
        steps = iter(sampler)
        steps.load_state_dict({"step": 2})
        assert list(steps) == first[2:]

    def test_makes_no_batch_to_get_there(self, store: tokpress.Store) -> None:
        loader = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=1, num_workers=0)
        steps = iter(loader.sampler)
        steps.load_state_dict({"step": len(loader) - 1})  # type: ignore[attr-defined]
        assert len(list(steps)) == 1

    def test_loaded_into_a_pass_that_has_begun_has_the_order_of_its_own_epoch(self, store: tokpress.Store) -> None:
        sampler: Any = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0).sampler
        epochs = [list(sampler) for _ in range(3)]
        sampler.set_epoch(0)
        steps = iter(sampler)
        assert next(steps) == epochs[0][0]
        sampler.load_state_dict({"epoch": 3})  # as it stands during the third pass
        steps.load_state_dict({"step": 2})
        assert list(steps) == epochs[2][2:]


def test_its_dataset_has_a_length(store: tokpress.Store) -> None:
    """accelerate asks for it, and HF Trainer, for the number of samples."""
    loader = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0)
    assert len(loader.dataset) == len(tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN))  # type: ignore[arg-type]


class TestMistakes:
    def test_no_length(self, store: tokpress.Store) -> None:
        with pytest.raises(UsageError, match="needs a seq_len"):
            tokpress.make_dataloader(store, batch_size=4)

    def test_options_twice(self, store: tokpress.Store) -> None:
        data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
        with pytest.raises(UsageError, match="already in the dataset"):
            tokpress.make_dataloader(data, batch_size=4, seq_len=8)

    def test_nothing_to_load(self, store: tokpress.Store) -> None:
        with pytest.raises(StoreError, match="has no sequence of"):
            tokpress.make_dataloader(store, batch_size=4, seq_len=10**7)
