"""Text -> chunk_000000.pt ... and metadata.json, packed to one length without padding; for a trainer with --pretokenized.

    python examples/pretokenize_chunks.py --dataset 'data/*.jsonl' --tokenizer tokenizer.json --chunk_size 32768 \
        --num_proc 8 --output_dir chunks
    python examples/train.py --data chunks.store --seq-len 32768 --out run

The store is made at OUTPUT_DIR.store, once; `--store` names one that is there. Another chunk size is another export of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

import tokpress


class PreTokenizedDataset(torch.utils.data.Dataset[torch.Tensor]):
    """Chunks as a trainer with --pretokenized reads them."""

    def __init__(self, directory: str) -> None:
        self.files = sorted(Path(directory).glob("train/chunk_*.pt"))
        if not self.files:
            sys.exit(f"No chunks found in {directory}. Make them: python {sys.argv[0]} --help")
        self.rows = [(file, row) for file in self.files for row in range(len(torch.load(file, mmap=True)))]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        file, row = self.rows[index]
        sequence: torch.Tensor = torch.load(file, mmap=True)[row].long()
        return sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, metavar="INPUT", help="files, a glob, s3:// or hf://datasets/...")
    parser.add_argument("--tokenizer", required=True, metavar="SPEC")
    parser.add_argument("--chunk_size", type=int, default=32768)
    parser.add_argument("--num_proc", type=int, help="default: one for each physical core")
    parser.add_argument("--output_dir", required=True, metavar="DIR")
    parser.add_argument("--store", metavar="DIR", help="default: OUTPUT_DIR.store")
    given = parser.parse_args()

    out = given.store or f"{given.output_dir}.store"
    store = tokpress.build(given.dataset, tokenizer=given.tokenizer, out=out, workers=given.num_proc)
    tokpress.export(store, to="pt", seq_len=given.chunk_size, out=given.output_dir)
    chunks = PreTokenizedDataset(given.output_dir)
    print(f"{store.num_tokens:,} tokens, {len(chunks):,} sequences of {given.chunk_size:,} in {given.output_dir}")


if __name__ == "__main__":
    main()
