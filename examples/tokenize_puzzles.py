"""Questions and answers in JSONL -> input.npy, target.npy and mask.npy of a fixed length, for train and validation.

    python examples/tokenize_puzzles.py --input puzzles.jsonl --output arrays --max_length 64
    python examples/tokenize_puzzles.py --input puzzles.jsonl --output arrays --max_length 64 --num_workers 8 --monitor
    python examples/tokenize_puzzles.py --input puzzles.jsonl --output arrays --max_length 64 --benchmark

The store is made beside the arrays, at OUTPUT.store. Stopped, the same command continues.
"""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="JSONL")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--tokenizer", default="bytes", metavar="SPEC")
    parser.add_argument("--question_field", default="question")
    parser.add_argument("--answer_field", default="answer")
    parser.add_argument("--max_length", type=int, default=512)
    parser.add_argument("--val_fraction", type=float, default=0.05)
    parser.add_argument("--num_workers", default="auto", help="a number; auto: one for each physical core")
    parser.add_argument("--n_puzzles", type=int, help="only the first so many")
    parser.add_argument("--monitor", action="store_true", help="show every worker while it runs")
    parser.add_argument("--benchmark", action="store_true", help="compare numbers of workers, and write nothing")
    given = parser.parse_args()

    fields = ["--prompt-field", given.question_field, "--completion-field", given.answer_field]
    source = [given.input, "--tokenizer", given.tokenizer]
    if given.benchmark:
        return _tokpress("bench", "workers", *source, *fields)
    store = f"{given.output}.store"
    build = [*source, "--out", store, *fields, "--val-fraction", str(given.val_fraction)]
    build += ["--workers", given.num_workers, "--max-length", str(given.max_length)]
    build += ["--limit", str(given.n_puzzles)] if given.n_puzzles else []
    build += ["--monitor"] if given.monitor else []
    return _tokpress("build", *build) or _tokpress(
        "export", store, "--to", "npy", "--max-length", str(given.max_length), "--out", given.output
    )


def _tokpress(*arguments: str) -> int:
    return subprocess.call([sys.executable, "-m", "tokpress", *arguments])


if __name__ == "__main__":
    sys.exit(main())
