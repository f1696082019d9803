"""datatrove's dataset opens our folders; we adopt what its tokenizer step writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.stores import documents, masks_of

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("dtype", "width"), [("uint16", 2), ("uint32", 4)])
def test_it_reads_our_tokens_and_bounds(peer: Any, make_store: Any, tmp_path: Path, dtype: str, width: int) -> None:
    dataset = peer("datatrove.utils.dataset")
    store = make_store({"train": [[30, 3, 7, 50], [12], [1, 1, 300]], "val": [[5, 5]]}, dtype=dtype)
    tokpress.export(store, to="datatrove", out=tmp_path / "out")
    seq_len = 9
    data = dataset.DatatroveFolderDataset(
        str(tmp_path / "out" / "train"), seq_len, token_size=width, return_positions=True
    )
    expected = []  # a file at a time, in windows of seq_len + 1; what is left over is not read
    for number in range(len(store.shard_doc_ends)):
        shard = store.shard(number)
        starts = np.concatenate(([0], shard.ends[:-1]))
        places = np.concatenate([np.arange(end - start) for start, end in zip(starts, shard.ends, strict=True)])
        for first in range(0, len(shard.ids) - seq_len, seq_len + 1):
            window = slice(first, first + seq_len + 1)
            since = np.minimum(places[window], np.arange(seq_len + 1))  # a window begins a document of its own
            expected.append((shard.ids[window].tolist(), since.tolist()))
    assert len(data) == len(expected)
    found = [data[i] for i in range(len(data))]
    assert [item["input_ids"].tolist() for item in found] == [ids for ids, _ in expected]
    assert [item["positions"].tolist() for item in found] == [places for _, places in expected]


def test_what_its_tokenizer_step_writes_is_adopted(peer: Any, bpe: Path, texts: list[str], tmp_path: Path) -> None:
    tokens, data, tokenizers = peer("datatrove.pipeline.tokens"), peer("datatrove.data"), peer("tokenizers")
    step = tokens.DocumentTokenizer(
        output_folder=str(tmp_path / "ds"),
        tokenizer_name_or_path=str(bpe),
        eos_token="<|endoftext|>",
        shuffle_documents=False,
        save_loss_metadata=True,
    )
    some = [text for text in texts[:60] if text]
    documents_in = [data.Document(text=text, id=str(i), metadata={}) for i, text in enumerate(some)]
    documents_in[3].metadata["no_loss_ranges"] = [(0, 5)]
    step.run(iter(documents_in))
    store = tokpress.import_tokens(tmp_path / "ds", format="datatrove", tokenizer=bpe, out=tmp_path / "store")
    reference = tokenizers.Tokenizer.from_file(str(bpe))
    eos = reference.token_to_id("<|endoftext|>")
    assert documents(store) == [[*reference.encode(text).ids, eos] for text in some]
    assert store.manifest.eos_id == eos
    assert store.verify().ok
    shard = store.shard(0)
    assert shard.mask is not None
    masked = np.flatnonzero(shard.mask == 0)
    first = int(shard.ends[2])
    assert masked.tolist() == list(range(first, first + len(masked)))
    assert 0 < len(masked) < len(store.doc(3))


def test_our_masks_come_back(peer: Any, make_store: Any, tmp_path: Path) -> None:
    peer("datatrove.utils.dataset")
    store = make_store({"train": [[30, 3, 7], [12, 4]]}, masks=True)
    tokpress.export(store, to="datatrove", out=tmp_path / "out")
    again = tokpress.import_tokens(
        tmp_path / "out" / "train", format="datatrove", tokenizer="bytes", out=tmp_path / "s"
    )
    assert documents(again) == documents(store)
    assert masks_of(again) == masks_of(store)
