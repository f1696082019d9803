"""Many jsonl.zst files and a SentencePiece model -> a store; then (input_ids, target_ids), with no tokenizer in the loop.

    python examples/tokenize_slimpajama.py --input_dir chunk1 --tokenizer spm.model --output_dir tokens
    python examples/tokenize_slimpajama.py --input_dir chunk1 --tokenizer spm.model --output_dir tokens --num_workers 8

Stopped, the same command continues. The last lines show what a training loop gets.
"""

from __future__ import annotations

import argparse

import tokpress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input_dir", required=True, metavar="DIR", help="all files below it")
    parser.add_argument("--tokenizer", required=True, metavar="MODEL", help="a SentencePiece .model")
    parser.add_argument("--output_dir", required=True, metavar="DIR")
    parser.add_argument("--num_workers", type=int, help="default: one for each physical core")
    parser.add_argument("--max_length", type=int, default=2048, help="of the sequences shown; needs no new build")
    given = parser.parse_args()

    store = tokpress.build(given.input_dir, tokenizer=given.tokenizer, out=given.output_dir, workers=given.num_workers)
    print(f"{store.num_docs:,} documents, {store.num_tokens:,} tokens in {store.path}")

    pairs = tokpress.load_pretokenized_dataset(given.output_dir, seq_len=given.max_length, shuffle=True, seed=0)
    for input_ids, target_ids in pairs:
        print(f"a sample: input_ids {tuple(input_ids.shape)}, target_ids {tuple(target_ids.shape)}")
        break


if __name__ == "__main__":
    main()
