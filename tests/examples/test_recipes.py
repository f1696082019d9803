"""The recipes in examples/: each runs with the flags that its page names, and leaves what its users expect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import zstandard

import tokpress

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
RECIPES = (ROOT / "docs" / "guides" / "recipes.md").read_text()
RECORDS = [{"text": f"Record {i}. " + "some words of a text " * (i % 40)} for i in range(400)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)


def run(script: str, *arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


class TestPuzzles:
    FLAGS = ("--input", "puzzles.jsonl", "--output", "arrays", "--max_length", "64")

    @pytest.fixture(autouse=True)
    def puzzles(self, tmp_path: Path) -> None:
        lines = [json.dumps({"question": f"{i:04d}=", "answer": f"{i:04d}"[::-1]}) + "\n" for i in range(600)]
        (tmp_path / "puzzles.jsonl").write_text("".join(lines))

    def test_become_arrays(self, tmp_path: Path) -> None:
        run("tokenize_puzzles.py", *self.FLAGS, "--num_workers", "2", "--n_puzzles", "500", cwd=tmp_path)
        rows = 0
        for split in ("train", "val"):
            ids, target, mask = (np.load(tmp_path / "arrays" / split / f"{n}.npy") for n in ("input", "target", "mask"))
            assert ids.shape == target.shape == mask.shape
            assert bytes(target[0][mask[0] == 1].tolist()[:-1]) == bytes(ids[0, :4].tolist())[::-1]
            rows += len(ids)
        assert rows == 500

    def test_can_be_benchmarked(self, tmp_path: Path) -> None:
        said = run("tokenize_puzzles.py", *self.FLAGS, "--benchmark", cwd=tmp_path)
        assert "workers" in said
        assert not (tmp_path / "arrays").exists()


def test_slimpajama_becomes_pairs(tmp_path: Path) -> None:
    import sentencepiece

    (tmp_path / "chunk1").mkdir()
    for number in range(3):
        (tmp_path / "chunk1" / f"part-{number}.jsonl.zst").write_bytes(zstandard.compress(LINES.encode()))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(record["text"] for record in RECORDS),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=50,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    flags = ("--input_dir", "chunk1", "--tokenizer", "spm.model", "--output_dir", "tokens", "--max_length", "128")
    said = run("tokenize_slimpajama.py", *flags, cwd=tmp_path)
    assert "1,200 documents" in said
    assert "input_ids (128,), target_ids (128,)" in said.replace("127", "128")


class TestFinpile:
    FLAGS = ("--input_dir", "finpile", "--output_dir", "tokens", "--tokenizer", "bytes")

    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        (tmp_path / "finpile").mkdir()
        for number in range(20):
            (tmp_path / "finpile" / f"{number:03d}.jsonl").write_text(LINES)

    def test_becomes_parquet_within_a_budget(self, tmp_path: Path) -> None:
        said = run("tokenize_finpile.py", *self.FLAGS, "--num_workers", "2", "--memory", "3GB", cwd=tmp_path)
        assert "8,000 documents" in said
        tables = sorted((tmp_path / "tokens-parquet" / "train").glob("*.parquet"))
        assert sum(pq.read_metadata(table).num_rows for table in tables) == 8000
        run(
            "tokenize_finpile.py", *self.FLAGS, "--memory", "3GB", cwd=tmp_path
        )  # the same command again: nothing to do

    def test_is_estimated_first(self, tmp_path: Path) -> None:
        assert "workers: about" in run("tokenize_finpile.py", *self.FLAGS, "--estimate", cwd=tmp_path)
        assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("size", [512, 1024])
def test_text_becomes_chunks(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    flags = ("--dataset", "a.jsonl", "--tokenizer", "bytes", "--num_proc", "2", "--output_dir", "chunks")
    said = run("pretokenize_chunks.py", *flags, "--chunk_size", str(size), cwd=tmp_path)
    store = tokpress.open(tmp_path / "chunks.store")
    assert f"{store.num_tokens:,} tokens" in said
    chunk = torch.load(tmp_path / "chunks" / "train" / "chunk_000000.pt", weights_only=True)
    assert chunk.shape[1] == size
    assert np.array_equal(chunk[0].numpy(), store.tokens(0, size))
    assert json.loads((tmp_path / "chunks" / "metadata.json").read_text())


@pytest.mark.parametrize("way", ["one_by_one", "parallel", "live", "pretokenized"])
def test_a_loop_has_four_ways_to_its_batches(tmp_path: Path, way: str) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    flags = ("--data", "*.jsonl", "--tokenizer", "bytes", "--tokenize", way, "--steps", "5", "--seq_len", "64")
    said = run("loop_that_tokenizes.py", *flags, cwd=tmp_path)
    assert said.splitlines()[-1].startswith(f"{way}: ")


@pytest.mark.parametrize("script", sorted(set(re.findall(r"examples/(\w+\.py)", RECIPES)) - {"train.py"}))
def test_a_recipe_names_flags_that_there_are(script: str, tmp_path: Path) -> None:
    """In the column of what is run now."""
    known = set(re.findall(r"--\w+", run(script, "--help", cwd=tmp_path)))
    for command in re.findall(rf"`python examples/{script} ([^`]*)`", RECIPES):
        assert set(re.findall(r"--\w+", command)) <= known
