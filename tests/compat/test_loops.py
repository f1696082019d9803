"""Training loops of others go through our loaders: every batch once, in order, also after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokpress

from .training import SEQ_LEN, Model, batches, small_store

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("loops")).path


def dataloader(store: Path, **options: Any) -> Any:
    return tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0, **options)


class TestAccelerate:
    @pytest.fixture
    def accelerator(self, peer: Any) -> Any:
        accelerate = peer("accelerate")

        def make(*, stateful: bool) -> Any:
            config = peer("accelerate.utils").DataLoaderConfiguration(use_stateful_dataloader=stateful)
            return accelerate.Accelerator(cpu=True, dataloader_config=config)

        return make

    @pytest.mark.parametrize("stateful", [False, True])
    def test_a_prepared_loader_gives_our_batches(self, accelerator: Any, store: Path, stateful: bool) -> None:
        prepared = accelerator(stateful=stateful).prepare(dataloader(store, stateful=stateful))
        assert batches(prepared) == batches(dataloader(store))

    def test_skipping_batches_goes_on_with_the_next(self, accelerator: Any, store: Path) -> None:
        accelerator = accelerator(stateful=False)
        rest = accelerator.skip_first_batches(accelerator.prepare(dataloader(store)), 5)
        assert batches(rest) == batches(dataloader(store))[5:]

    def test_a_saved_state_goes_on_with_the_next(self, accelerator: Any, store: Path, tmp_path: Path) -> None:
        def loader(accelerator: Any) -> Any:
            return accelerator.prepare(dataloader(store, stateful=True))

        saving = accelerator(stateful=True)
        interrupted = loader(saving)
        steps = iter(interrupted)
        seen = [next(steps)["input_ids"].tolist() for _ in range(5)]
        saving.save_state(str(tmp_path / "state"))
        resuming = accelerator(stateful=True)
        resumed = loader(resuming)
        resuming.load_state(str(tmp_path / "state"))
        assert seen + batches(resumed) == batches(dataloader(store))


class TestLightning:
    @pytest.fixture
    def lightning(self, peer: Any) -> Any:
        return peer("lightning")

    def fit(self, lightning: Any, data: Any, steps: int, tmp_path: Path, **options: Any) -> list[Any]:
        """What a model is given in so many steps, saved after each."""

        class Module(lightning.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = Model()

            def training_step(self, batch: Any, _: int) -> Any:
                return self.model(**batch)["loss"]

            def configure_optimizers(self) -> Any:
                import torch

                return torch.optim.SGD(self.parameters(), lr=0.1)

        module = Module()
        trainer = lightning.Trainer(
            max_steps=steps,
            max_epochs=5,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            callbacks=[
                lightning.pytorch.callbacks.ModelCheckpoint(
                    dirpath=tmp_path, filename="at", every_n_train_steps=1, enable_version_counter=False
                )
            ],
        )
        trainer.fit(module, data, **options)
        seen: list[Any] = module.model.seen
        return seen

    @pytest.mark.parametrize("kind", ["stateful dataloader", "loader with a length"])
    def test_goes_on_with_the_very_next_batch(self, lightning: Any, store: Path, tmp_path: Path, kind: str) -> None:
        def made() -> Any:
            if kind == "stateful dataloader":
                return dataloader(store, stateful=True)
            data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
            return tokpress.Loader(data, batch_size=8, max_epochs=3, steps=12)

        expected = batches(made())
        first = self.fit(lightning, made(), 5, tmp_path)
        rest = self.fit(lightning, made(), 12, tmp_path, ckpt_path=str(tmp_path / "at.ckpt"), weights_only=False)
        assert first + rest == expected[:12]

    def test_fabric_saves_and_restores_a_loader(self, lightning: Any, store: Path, tmp_path: Path) -> None:
        fabric = lightning.Fabric(accelerator="cpu", devices=1)

        def made() -> Any:
            data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
            return tokpress.Loader(data, batch_size=8, steps=12)

        interrupted, steps = made(), []
        for batch in interrupted:
            steps.append(batch["input_ids"].tolist())
            if len(steps) == 5:
                break
        fabric.save(tmp_path / "state.ckpt", {"loader": interrupted})
        resumed = made()
        fabric.load(tmp_path / "state.ckpt", {"loader": resumed}, weights_only=False)
        assert steps + batches(resumed) == batches(made())


def test_torch_distributed_checkpoint_keeps_a_loader_s_state(peer: Any, store: Path, tmp_path: Path) -> None:
    checkpoint = peer("torch.distributed.checkpoint")

    def made() -> Any:
        return tokpress.Loader(tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN), batch_size=8, steps=12)

    interrupted, steps = made(), []
    for batch in interrupted:
        steps.append(batch["input_ids"].tolist())
        if len(steps) == 5:
            break
    checkpoint.save({"loader": interrupted}, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    resumed = made()
    checkpoint.load({"loader": resumed}, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    assert steps + batches(resumed) == batches(made())


def test_grain_takes_a_dataset_as_a_source(peer: Any, store: Path) -> None:
    """Its own shuffle and batches; its state goes on with the next."""
    grain = peer("grain.python")
    source = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, output="numpy")

    def made() -> Any:
        return grain.MapDataset.source(source).shuffle(seed=3).batch(8).to_iter_dataset().__iter__()

    whole = [batch["input_ids"].tolist() for batch in made()]
    assert sorted(row for batch in whole for row in batch) == sorted(
        source[i]["input_ids"].tolist() for i in range(len(source))
    )
    interrupted = made()
    first = [next(interrupted)["input_ids"].tolist() for _ in range(5)]
    resumed = made()
    resumed.set_state(interrupted.get_state())
    assert first + [batch["input_ids"].tolist() for batch in resumed] == whole
