"""torchtitan's contract of a dataloader: a stateful iterator of inputs and labels, saved by its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokpress
from compat.training import SEQ_LEN, small_store

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("titan")).path


def made(peer: Any, store: Path, rank: int = 0, world_size: int = 1) -> Any:
    class TokpressDataLoader(peer("torchtitan.components.dataloader").BaseDataLoader):  # type: ignore[misc]
        """As docs/integrations/torchtitan.md has it."""

        def __init__(self) -> None:
            data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, shift_labels=True)
            self.loader = tokpress.Loader(data, batch_size=4, rank=rank, world_size=world_size, steps=12)

        def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
            for batch in self.loader:
                yield {"input": batch["input_ids"]}, batch["labels"]

        def state_dict(self) -> dict[str, Any]:
            return self.loader.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loader.load_state_dict(state)

    return TokpressDataLoader()


def steps(loader: Any) -> list[Any]:
    return [(inputs["input"].tolist(), labels.tolist()) for inputs, labels in loader]


def test_labels_are_the_next_tokens(peer: Any, store: Path) -> None:
    for inputs, labels in steps(made(peer, store)):
        assert [row[1:] for row in inputs] == [row[:-1] for row in labels]


def test_a_checkpoint_goes_on_with_the_very_next_batch(peer: Any, store: Path, tmp_path: Path) -> None:
    checkpoint = peer("torch.distributed.checkpoint")
    whole = steps(made(peer, store))
    interrupted, first = made(peer, store), []
    for inputs, labels in interrupted:
        first.append((inputs["input"].tolist(), labels.tolist()))
        if len(first) == 5:
            break
    checkpoint.save({"dataloader": interrupted}, checkpoint_id=str(tmp_path / "at"), no_dist=True)
    resumed = made(peer, store)
    checkpoint.load({"dataloader": resumed}, checkpoint_id=str(tmp_path / "at"), no_dist=True)
    assert first + steps(resumed) == whole


def test_its_own_dataloader_takes_a_dataset_and_goes_on(peer: Any, store: Path) -> None:
    """ParallelAwareDataloader around one of its own ranks' batches."""
    torch = peer("torch")

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, shift_labels=True)
            self.loader = tokpress.Loader(data, batch_size=4, rank=1, world_size=2, steps=12)

        def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
            for batch in self.loader:
                yield {"input": batch["input_ids"]}, batch["labels"]

        def state_dict(self) -> dict[str, Any]:
            return self.loader.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loader.load_state_dict(state)

    def loader() -> Any:
        return peer("torchtitan.components.dataloader").ParallelAwareDataloader(Batches(), 1, 2, batch_size=None)

    whole = steps(loader())
    interrupted = loader()
    running = iter(interrupted)
    first = [next(running) for _ in range(5)]
    resumed = loader()
    resumed.load_state_dict(interrupted.state_dict())
    assert [(inputs["input"].tolist(), labels.tolist()) for inputs, labels in first] + steps(resumed) == whole
