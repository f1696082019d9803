"""A small transformer loses the same on a packed batch with document masking as on the documents alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tokpress

from .conftest import build, make_texts

VOCAB, WIDTH, HEADS, LONGEST = 257, 32, 4, 64
FIELDS = ["input_ids", "labels", "position_ids", "doc_ids", "cu_seqlens"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        changed: Tensor = x + self.mlp(self.after(x))
        return changed


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids: Tensor, position_ids: Tensor, visible: Tensor) -> Tensor:
        x = self.tokens(input_ids) + self.places(position_ids)
        for block in self.blocks:
            x = block(x, visible)
        logits: Tensor = self.head(x)
        return logits


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def visible_by_docs(doc_ids: Tensor) -> Tensor:
    return (doc_ids[:, :, None] == doc_ids[:, None, :]) & causal(doc_ids.shape[1])


def visible_by_bounds(cu_seqlens: Tensor, rows: int, length: int) -> Tensor:
    """As variable-length attention understands them: the flattened batch cut at these places."""
    part = torch.bucketize(torch.arange(rows * length), cu_seqlens[1:].long(), right=True).view(rows, length)
    return visible_by_docs(part)


def total_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(
        logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100, reduction="sum"
    )


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer().double().eval()


@pytest.mark.parametrize("shift_labels", [False, True])
@pytest.mark.parametrize("bounds", ["doc_ids", "cu_seqlens"])
@torch.no_grad()
def test_packed_and_alone_lose_the_same(model: Transformer, tmp_path: Path, shift_labels: bool, bounds: str) -> None:
    store = build(tmp_path, make_texts(40, 0, longest=LONGEST - 1))
    tokpress.pack(store.path, seq_len=LONGEST, method="bestfit")
    data = tokpress.PretokenizedDataset(
        store, seq_len=LONGEST, method="bestfit", fields=FIELDS, shift_labels=shift_labels, mask_across_docs=True
    )
    batch = data.batch(range(len(data)))
    assert (batch["doc_ids"].diff() > 0).any()  # documents share rows
    seen = (
        visible_by_docs(batch["doc_ids"])
        if bounds == "doc_ids"
        else visible_by_bounds(batch["cu_seqlens"], len(data), LONGEST)
    )
    logits, labels = model(batch["input_ids"], batch["position_ids"], seen), batch["labels"]
    if not shift_labels:  # the model shifts, as Hugging Face's do
        logits, labels = logits[:, :-1], labels[:, 1:]
    packed = total_loss(logits, labels)

    alone = torch.zeros((), dtype=torch.float64)
    for i in range(len(store)):
        ids = torch.tensor(store.doc(i).tolist())[None]
        places = torch.arange(ids.shape[1])[None]
        alone += total_loss(model(ids, places, causal(ids.shape[1])[None])[:, :-1], ids[:, 1:])
    assert int((labels != -100).sum()) == store.num_tokens - len(store)
    torch.testing.assert_close(packed, alone, rtol=1e-10, atol=1e-8)


@torch.no_grad()
def test_without_the_mask_it_does_not(model: Transformer, tmp_path: Path) -> None:
    """The test above can fail."""
    store = build(tmp_path, make_texts(40, 0, longest=LONGEST - 1))
    tokpress.pack(store.path, seq_len=LONGEST, method="bestfit")
    options = {"method": "bestfit", "fields": FIELDS, "mask_across_docs": True}
    batch = tokpress.PretokenizedDataset(store, seq_len=LONGEST, **options).batch([0, 1])  # type: ignore[arg-type]
    inputs = batch["input_ids"], batch["position_ids"]
    right = model(*inputs, visible_by_docs(batch["doc_ids"]))
    wrong = model(*inputs, causal(LONGEST)[None])
    assert (
        abs(total_loss(right[:, :-1], batch["labels"][:, 1:]) - total_loss(wrong[:, :-1], batch["labels"][:, 1:]))
        > 0.01
    )
