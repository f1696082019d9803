"""A small trainer that saves after every second step and goes on; with the faults that such trainers have, if asked for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import tokpress


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(260, 8)

    def forward(self, input_ids: Any) -> Any:
        return self.table(input_ids).sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--fault", choices=["none", "skips", "ends"], default="none")
    options = parser.parse_args()
    saved = options.out / "state.pt"
    begin = torch.load(saved, weights_only=True) if saved.exists() else None
    data = tokpress.PretokenizedDataset(options.data, seq_len=16)
    loader = tokpress.Loader(data, batch_size=2, steps=options.steps, max_epochs=100)
    if begin:
        loader.load_state_dict(begin)
    model = Model()
    if options.fault == "ends":
        return
    batches = iter(loader)
    if begin and options.fault == "skips":
        next(batches), next(batches)
    for step, batch in enumerate(batches, 1):
        model(batch["input_ids"]).backward()
        if step % 2 == 0:
            torch.save(loader.state_dict(), saved.with_suffix(".new"))
            saved.with_suffix(".new").rename(saved)


if __name__ == "__main__":
    main()
