"""Puzzles from records to a trained model: generate, build, export, train, and check what the model learned.

    python examples/puzzles.py                  100,000 puzzles; 15 seconds
    python examples/puzzles.py --records 20000 --steps 150

A puzzle is six digits, its answer the same digits in reverse: {"puzzle": "483920=", "answer": "029384"}. Only the answer is
learned, so a model that gets it right was told the right thing: had the mask stood one token off, or over the puzzle (which
is noise), it would not. The model is a transformer of one layer and 60,000 parameters. It must answer 99 % of the validation
puzzles without a mistake, digits and end; by chance it is one in a million.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

import tokpress

DIGITS = 6
MAX_LENGTH = 16
GOAL = 0.99


def write_puzzles(path: Path, records: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    with path.open("w") as file:
        for i in range(records):
            digits = "".join(rng.choices("0123456789", k=DIGITS))
            file.write(json.dumps({"id": i, "puzzle": f"{digits}=", "answer": digits[::-1]}) + "\n")


def make_arrays(directory: Path, records: int) -> Path:
    """Puzzles -> store -> input.npy, target.npy and mask.npy of `train` and `val`."""
    write_puzzles(directory / "puzzles.jsonl", records)
    store = tokpress.build(
        directory / "puzzles.jsonl",
        tokenizer="bytes",
        out=directory / "tokens",
        prompt_field="puzzle",
        completion_field="answer",
        val_fraction=0.02,
        split_key="puzzle",  # so that no puzzle of the validation stands in the training as well
    )
    tokpress.export(store, to="npy", out=directory / "arrays", max_length=MAX_LENGTH)
    return directory / "arrays"


class Model(torch.nn.Module):
    """One layer of a transformer."""

    def __init__(self, vocab_size: int = 257, width: int = 64) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(vocab_size, width)
        self.positions = torch.nn.Embedding(MAX_LENGTH, width)
        self.layer = torch.nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = torch.nn.Linear(width, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        causal = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        hidden = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        logits: torch.Tensor = self.head(self.layer(hidden, src_mask=causal, is_causal=True))
        return logits


class Arrays:
    """One split, mapped; a batch is the rows of it that are asked for."""

    def __init__(self, directory: Path) -> None:
        self._maps = {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in ("input", "target", "mask")}

    def __len__(self) -> int:
        return len(self._maps["input"])

    def rows(self, which: slice | npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids, target, mask = (torch.from_numpy(array[which].astype(np.int64)) for array in self._maps.values())
        return ids, target, mask.bool()


def train(model: Model, arrays: Arrays, steps: int, batch_size: int = 256) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        ids, target, mask = arrays.rows(np.sort(rng.integers(0, len(arrays), batch_size)))
        loss = torch.nn.functional.cross_entropy(model(ids)[mask], target[mask])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def accuracy(model: Model, arrays: Arrays) -> float:
    """The share of puzzles whose loss tokens, the answer and its end, are all right."""
    ids, target, mask = arrays.rows(slice(None))
    with torch.no_grad():
        right = (model(ids).argmax(-1) == target) | ~mask
    return float(right.all(1).float().mean())


def main() -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is too small to share
    with tempfile.TemporaryDirectory(prefix="puzzles-") as scratch:
        began = perf_counter()
        directory = make_arrays(Path(scratch), options.records)
        made = perf_counter() - began
        training, validation = (Arrays(directory / split) for split in ("train", "val"))
        print(f"{len(training):,} + {len(validation):,} puzzles as arrays in {made:.1f} s")
        model = Model()
        began = perf_counter()
        train(model, training, options.steps)
        reached = accuracy(model, validation)
        print(
            f"{options.steps} steps in {perf_counter() - began:.1f} s: {reached:.1%} of the validation puzzles are right"
        )
    return reached


if __name__ == "__main__":
    if main() < GOAL:
        raise SystemExit(f"less than {GOAL:.0%}: something is wrong")
