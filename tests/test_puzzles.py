"""examples/puzzles.py, in a smaller size: masks mean what they say, because a model learns from them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "examples" / "puzzles.py"


@pytest.fixture(scope="module")
def puzzles() -> ModuleType:
    spec = importlib.util.spec_from_file_location("puzzles", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def arrays(puzzles: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = puzzles.make_arrays(tmp_path_factory.mktemp("puzzles"), 6000)
    return made


def test_what_the_mask_marks_is_the_answer_and_its_end(arrays: Path) -> None:
    for split in ("train", "val"):
        ids, target, mask = (np.load(arrays / split / f"{name}.npy") for name in ("input", "target", "mask"))
        assert len(ids) > 50
        assert (mask.sum(1) == 7).all()
        for row in range(0, len(ids), 97):
            puzzle = bytes(ids[row, :6].tolist())
            assert target[row][mask[row] == 1].tolist() == [*puzzle[::-1], 256]


def test_no_puzzle_is_in_both_splits(arrays: Path) -> None:
    seen = [{row.tobytes() for row in np.load(arrays / split / "input.npy")[:, :6]} for split in ("train", "val")]
    assert not seen[0] & seen[1]


def test_a_model_learns_them(puzzles: ModuleType, arrays: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        model = puzzles.Model()
        before = puzzles.accuracy(model, puzzles.Arrays(arrays / "val"))
        puzzles.train(model, puzzles.Arrays(arrays / "train"), steps=120, batch_size=128)
        after = puzzles.accuracy(model, puzzles.Arrays(arrays / "val"))
    finally:
        torch.set_num_threads(threads)
    assert before < 0.01
    assert after > 0.9
