"""`--for TRAINER`: what a trainer wants of a format: its columns, whether rows have one length, how it opens them.

In: a name. Out: a `Trainer`. Labels are the ids themselves, -100 where there is no loss; `assistant_masks` the same as 0 and
1; `loss_weights` belong to the token before, which predicts; `turns` are what is said and what is answered, in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokpress.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What one trainer reads."""

    to: tuple[str, ...]  # formats; the first, unless another is asked for
    columns: tuple[str, ...] = ()  # of rows that are documents
    columns_of_sequences: tuple[str, ...] = ()  # of rows that are sequences of a packing; empty: the same
    seq_len: Literal["may", "must", "plain"] = "may"  # "plain": for stores without masks, and only for those
    opened_with: str
    opened_with_sequences: str = ""  # empty: the same
    bounds: str = ""  # what to do where it would find documents elsewhere; empty: it looks for none

    def columns_for(self, seq_len: int | None) -> tuple[str, ...]:
        return self.columns if seq_len is None else self.columns_of_sequences or self.columns


_LABELS = ("input_ids", "attention_mask", "labels")
TRAINERS = {
    "hf": Trainer(
        to=("arrow", "parquet"),
        columns=_LABELS,
        opened_with='Trainer(train_dataset=load_from_disk("{out}")["{split}"], data_collator=DataCollatorForSeq2Seq(...))',
    ),
    "trl": Trainer(
        to=("arrow", "parquet"),
        columns=("input_ids", "labels", "assistant_masks"),
        columns_of_sequences=("input_ids", "labels", "assistant_masks", "seq_lengths"),
        opened_with='SFTTrainer(train_dataset=load_from_disk("{out}")["{split}"], args=SFTConfig(max_length=None))',
    ),
    "axolotl": Trainer(
        to=("arrow", "parquet"),
        columns=_LABELS,
        opened_with="datasets: [path: {out}/{split}]; sequence_len as long as its longest row",
    ),
    "llm-foundry": Trainer(
        to=("mds",),
        columns=("turns",),
        columns_of_sequences=("tokens",),
        seq_len="plain",
        opened_with="dataset: local: {out}, split: {split}, target_prompts: none, target_responses: all",
    ),
    "megatron-bridge": Trainer(
        to=("bridge",), seq_len="must", opened_with="packed_train_data_path={out}/{split}.npy, answer_only_loss=True"
    ),
    "olmo-core": Trainer(
        to=("dolma",),
        opened_with="NumpyPackedFSLDatasetConfig(paths=[{out}/{split}/part-*.npy], use_array_if_local=False, ...)",
        opened_with_sequences="NumpyFSLDatasetConfig(paths=[{out}/{split}/part-*.npy], sequence_length={seq_len}, ...)",
        bounds="NumpyPackedFSLDatasetConfig(use_array_if_local=False) reads them from the tables; other datasets do not. "
        "Say --max-length N: a document a row for NumpyFSLDatasetConfig(sequence_length=N); or --lossy, to read the tables.",
    ),
    "levanter": Trainer(
        to=("parquet",),
        columns=("input_ids", "loss_weights"),
        seq_len="must",
        opened_with="train_urls: [{out}/{split}/*.parquet], format: type: prebuilt, loss_weights_key: loss_weights",
    ),
}


def find_trainer(name: str) -> Trainer:
    if name not in TRAINERS:
        raise UsageError(f"--for {name!r} is not known. Choose one of {', '.join(TRAINERS)}.")
    return TRAINERS[name]


def check_trainer(name: str, to: str, seq_len: int | None, *, masked: bool) -> None:
    """Raises UsageError for what this trainer would not read, or not as it is meant."""
    trainer = find_trainer(name)
    if to not in trainer.to:
        raise UsageError(f"--for {name} reads --to {' or '.join(trainer.to)}; leave --to out, or choose one of them.")
    if trainer.seq_len == "must" and seq_len is None:
        raise UsageError(f"--for {name} reads rows of one length. Say which: --seq-len 2048, or --max-length 2048.")
    if trainer.seq_len == "plain" and masked and seq_len is not None:
        raise UsageError(
            f"--for {name} reads the loss mask of documents only, and would have loss on everything in rows of --seq-len. "
            "Leave --seq-len out."
        )
    if trainer.seq_len == "plain" and not masked and seq_len is None:
        raise UsageError(
            f"--for {name} reads the first max_seq_len tokens of a document and drops the rest. Say how long rows are: "
            "--seq-len 2048."
        )
