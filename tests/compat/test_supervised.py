"""Trainers' own code reads our supervised exports: it has loss on the store's loss tokens, and on no others."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from formats.conftest import MakeStore
from formats.stores import EOS, documents, masks_of

import tokpress

pytestmark = [pytest.mark.filterwarnings("ignore")]
LENGTHS = {"train": [[9, 12, 5], [30, 7]]}


def counts(store: tokpress.Store) -> int:
    """Tokens in the loss that some token of their document predicts."""
    return sum(sum(mask[1:]) for mask in masks_of(store))


@pytest.fixture
def store(make_store: MakeStore) -> tokpress.Store:
    return make_store(LENGTHS, masks=True)


def test_trl_takes_our_labels(peer: Any, store: tokpress.Store, tmp_path: Path) -> None:
    """Its collator, and what its trainer makes of the columns before it gets there."""
    datasets, trainer = peer("datasets"), peer("trl.trainer.sft_trainer")
    tokpress.export(store, trainer="trl", out=tmp_path / "out")
    rows = datasets.load_from_disk(str(tmp_path / "out"))["train"]
    collator = trainer.DataCollatorForLanguageModeling(pad_token_id=EOS)
    batch = collator([rows[i] for i in range(len(rows))])
    assert int((batch["labels"][:, 1:] != -100).sum()) == counts(store)
    for ids, labels, doc in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), documents(store), strict=True):
        assert ids[: len(doc)] == doc
        assert all(label in (-100, token) for label, token in zip(labels, ids, strict=True))


def test_trl_keeps_packed_documents_apart(peer: Any, store: tokpress.Store, tmp_path: Path) -> None:
    datasets, trainer = peer("datasets"), peer("trl.trainer.sft_trainer")
    tokpress.pack(store.path, seq_len=32, method="bestfit")
    tokpress.export(store, trainer="trl", out=tmp_path / "out", seq_len=32, method="bestfit")
    rows = datasets.load_from_disk(str(tmp_path / "out"))["train"]
    collator = trainer.DataCollatorForLanguageModeling(pad_token_id=EOS, padding_free=True)
    batch = collator([rows[i] for i in range(len(rows))])
    assert int((batch["labels"] != -100).sum()) == counts(store)


@pytest.mark.parametrize("trainer", ["hf", "axolotl"])
def test_hugging_face_s_collator_takes_our_labels(
    peer: Any, store: tokpress.Store, tmp_path: Path, trainer: str
) -> None:
    datasets, transformers = peer("datasets"), peer("transformers")
    tokpress.export(store, trainer=trainer, out=tmp_path / "out")
    rows = datasets.load_from_disk(str(tmp_path / "out"))["train"]
    tokenizers = peer("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": EOS}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>")
    batch = transformers.DataCollatorForSeq2Seq(tokenizer)([rows[i] for i in range(len(rows))])
    assert int((batch["labels"][:, 1:] != -100).sum()) == counts(store)
    assert batch["attention_mask"].sum(dim=1).tolist() == [len(doc) for doc in documents(store)]
    if trainer == "axolotl":  # it takes a dataset for tokenized by these names
        assert {"input_ids", "attention_mask", "labels"} <= set(rows.features)


@pytest.fixture
def stitch(peer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of LLM Foundry's collator, whose package needs a GPU's kernels; this file of it needs one number of the rest."""
    peer("transformers")
    try:
        files = metadata.files("llm-foundry") or []
    except metadata.PackageNotFoundError as error:
        if os.environ.get("TOKPRESS_COMPAT") == "1":
            raise
        pytest.skip(f"needs llm-foundry ({error}); `make compat` installs it")
    [path] = [file for file in files if str(file).endswith("data/finetuning/collator.py")]
    consts = ModuleType("llmfoundry.utils.consts")
    consts.CROSS_ENTROPY_IGNORE_INDEX = -100  # type: ignore[attr-defined]
    for name in ("llmfoundry", "llmfoundry.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, consts.__name__, consts)
    spec = spec_from_file_location("collator", str(path.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.stitch_turns_decoder_only


@pytest.mark.usefixtures("stood_in")
def test_llm_foundry_takes_our_turns(peer: Any, stitch: Any, store: tokpress.Store, tmp_path: Path) -> None:
    """MosaicML's reader gives the turns, LLM Foundry's own code stitches them."""
    streaming = peer("streaming")
    peer("streaming.base.util").clean_stale_shared_memory()
    made = tokpress.export(store, trainer="llm-foundry", out=tmp_path / "out", lossy=True)
    data = streaming.StreamingDataset(local=str(tmp_path / "out" / "train"), batch_size=1, shuffle=False)
    assert len(data) == store.num_docs
    labels = sum(len(turn["labels"]) for i in range(len(data)) for turn in data[i]["turns"])
    assert labels == sum(map(sum, masks_of(store)))
    for i, doc in enumerate(documents(store)):
        ids = [token for turn in data[i]["turns"] for token in (*turn["input_ids"], *turn["labels"])]
        assert ids == doc[: len(ids)]
    added = sum(loss.tokens for loss in made.losses or [] if loss.kind == "loss-changed")
    stitched = [
        stitch(data[i]["turns"], "none", "all", eos_token_id=EOS)[1] for i in range(len(data)) if data[i]["turns"]
    ]
    assert sum(label != -100 for labels in stitched for label in labels) == sum(map(sum, masks_of(store))) + added


def test_megatron_bridge_s_file_is_what_its_reader_loads(store: tokpress.Store, tmp_path: Path) -> None:
    tokpress.export(store, trainer="megatron-bridge", out=tmp_path / "out", max_length=32)
    rows = np.load(tmp_path / "out" / "train.npy", allow_pickle=True)
    assert sum(int(row["loss_mask"].sum()) for row in rows) == counts(store)
    assert all(isinstance(row["seq_start_id"], list) for row in rows)
