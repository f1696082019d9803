"""Hugging Face's Trainer and TRL's SFTTrainer: every batch once, also after a stop; loss on the store's loss tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import EOS, masks_of

import tokpress

from .training import SEQ_LEN, Model, batches, small_store

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("trainer")).path


def arguments(transformers: Any, out: Path, **options: Any) -> Any:
    return transformers.TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=8,
        save_strategy="steps",
        save_steps=5,
        logging_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )


def train(peer: Any, store: Path, out: Path, steps: int, *, ours: bool, **options: Any) -> list[Any]:
    """What the model is given in so many steps: by our loader, or by the Trainer's own from our dataset."""
    peer("accelerate")  # which it needs, without importing it itself
    transformers = peer("transformers")

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            if not ours:
                return super().get_train_dataloader()
            loader = tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0)
            return self.accelerator.prepare(loader)

    model = Model()
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN)
    trainer = Trainer(model=model, args=arguments(transformers, out, max_steps=steps), train_dataset=data)
    trainer.train(**options)
    return model.seen


@pytest.mark.parametrize("ours", [True, False])
def test_its_own_resume_goes_on_with_the_very_next_batch(peer: Any, store: Path, tmp_path: Path, ours: bool) -> None:
    whole = train(peer, store, tmp_path / "whole", 12, ours=ours)
    first = train(peer, store, tmp_path / "cut", 5, ours=ours)
    rest = train(
        peer, store, tmp_path / "cut", 12, ours=ours, resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-5")
    )
    assert first + rest == whole
    if ours:
        assert whole == batches(tokpress.make_dataloader(store, seq_len=SEQ_LEN, batch_size=8, num_workers=0))[:12]


def tiny(peer: Any) -> tuple[Any, Any]:
    """A model and a tokenizer of two hundred and fifty-seven ids."""
    transformers, tokenizers = peer("transformers"), peer("tokenizers")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=257, n_positions=64, n_embd=8, n_layer=1, n_head=1, eos_token_id=EOS)
    )
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<end>": EOS}, unk_token="<end>"))
    return model, transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<end>", eos_token="<end>")


@pytest.mark.parametrize("packed", [False, True])
def test_sft_trainer_has_loss_on_the_store_s_loss_tokens(
    peer: Any, make_store: Any, tmp_path: Path, packed: bool
) -> None:
    """All of SFTTrainer: it prepares the dataset, collates, and calls the model with labels."""
    trl, datasets, torch = peer("trl"), peer("datasets"), peer("torch")
    store = make_store({"train": [[9, 12, 5], [30, 7]]}, masks=True)
    if packed:
        tokpress.pack(store.path, seq_len=32, method="bestfit")
    options: dict[str, Any] = {"seq_len": 32, "method": "bestfit"} if packed else {}
    tokpress.export(store, trainer="trl", out=tmp_path / "out", **options)
    model, tokenizer = tiny(peer)
    given: list[Any] = []
    model.register_forward_pre_hook(lambda _m, _args, named: given.append(named["labels"]), with_kwargs=True)
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "run"),
            max_length=None,
            per_device_train_batch_size=2,
            num_train_epochs=1,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
            bf16=False,
        ),
        train_dataset=datasets.load_from_disk(str(tmp_path / "out"))["train"],
        processing_class=tokenizer,
    )
    trainer.train()
    labelled = sum(int(torch.count_nonzero(labels != -100)) for labels in given)
    assert labelled == sum(map(sum, masks_of(store)))
