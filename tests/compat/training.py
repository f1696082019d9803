"""A store that is small, a model that learns something from it at once, and what it was given: for trainers' tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import tokpress

SEQ_LEN = 16


def small_store(directory: Path, docs: int = 120) -> tokpress.Store:
    lines = (json.dumps({"text": f"document {i} says {i * i} " * (1 + i % 5)}) for i in range(docs))
    (directory / "texts.jsonl").write_text("".join(line + "\n" for line in lines))
    return tokpress.build(directory / "texts.jsonl", tokenizer="bytes", out=directory / "store")


class Model(torch.nn.Module):
    """Predicts the next byte from the last one; returns its loss as Hugging Face's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(260, 260)
        self.seen: list[Any] = []  # the batches that it was given

    def forward(self, input_ids: Any, labels: Any, **_: Any) -> dict[str, Any]:
        self.seen.append(input_ids.tolist())
        logits = self.table(input_ids)[:, :-1].reshape(-1, 260)
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100)
        return {"loss": loss}


def batches(loader: Any) -> list[Any]:
    return [batch["input_ids"].tolist() for batch in loader]
