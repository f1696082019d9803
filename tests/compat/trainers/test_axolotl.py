"""axolotl loads our export by its own path from `datasets:` to batches, and has loss on the store's loss tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.stores import EOS, documents, masks_of

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def tokenizer(peer: Any) -> Any:
    tokenizers, transformers = peer("tokenizers"), peer("transformers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": EOS}, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<pad>")


def loaded(peer: Any, out: Path, tokenizer: Any, tmp_path: Path, **options: Any) -> Any:
    """What axolotl trains on, for a configuration with this export alone."""
    sft, config = peer("axolotl.utils.data.sft"), peer("axolotl.utils.dict").DictDefault
    one = {"path": str(out), "type": None, "ds_type": options.pop("ds_type", None), "split": "train"}
    cfg = config(
        {
            "datasets": [one],
            "sequence_len": 64,
            "dataset_prepared_path": str(tmp_path / "prepared"),
            "dataset_num_proc": 1,
            "seed": 1,
            **options,
        }
    )
    data, _ = sft._load_tokenized_prepared_datasets(tokenizer, cfg)
    return data


@pytest.mark.parametrize("to", ["arrow", "parquet"])
def test_it_has_loss_on_the_store_s_loss_tokens(
    peer: Any, make_store: Any, tokenizer: Any, tmp_path: Path, to: str
) -> None:
    store = make_store({"train": [[9, 12, 5], [30, 7]]}, masks=True)
    tokpress.export(store, trainer="axolotl", to=to, out=tmp_path / "out")
    out = tmp_path / "out" if to == "arrow" else tmp_path / "out" / "train"
    data = loaded(peer, out, tokenizer, tmp_path, **({"ds_type": "parquet"} if to == "parquet" else {}))
    assert len(data) == store.num_docs
    batch = peer("axolotl.utils.collators").DataCollatorForSeq2Seq(tokenizer)([data[i] for i in range(len(data))])
    assert int((batch["labels"] != -100).sum()) == sum(map(sum, masks_of(store)))
    found = [
        ids[: int(mask.sum())].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    assert sorted(found) == sorted(documents(store))


def test_its_packing_keeps_them(peer: Any, make_store: Any, tokenizer: Any, tmp_path: Path) -> None:
    store = make_store({"train": [[9, 12, 5], [30, 7]]}, masks=True)
    tokpress.export(store, trainer="axolotl", out=tmp_path / "out")
    data = loaded(peer, tmp_path / "out", tokenizer, tmp_path)
    collator = peer("axolotl.utils.collators").V2BatchSamplerDataCollatorForSeq2Seq(tokenizer)
    batch = collator([[data[i] for i in range(len(data))]])
    assert int((batch["labels"] != -100).sum()) == sum(map(sum, masks_of(store)))
