"""A directory of JSONL files -> token ids as Parquet, within a budget of memory.

    python examples/tokenize_finpile.py --input_dir finpile --output_dir tokens --tokenizer tokenizer.json --memory 3GB
    python examples/tokenize_finpile.py --input_dir finpile --output_dir tokens --tokenizer tokenizer.json --estimate

The store is at OUTPUT_DIR, the Parquet files at OUTPUT_DIR-parquet. Stopped, the same command continues with what is left.
"""

from __future__ import annotations

import argparse

import tokpress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input_dir", required=True, metavar="DIR")
    parser.add_argument("--output_dir", required=True, metavar="DIR")
    parser.add_argument("--tokenizer", required=True, metavar="SPEC")
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--memory", default="3GB", help="of the whole run, all workers together")
    parser.add_argument("--estimate", action="store_true", help="measure a sample; write nothing")
    given = parser.parse_args()

    if given.estimate:
        _, projection = tokpress.dry_run(given.input_dir, tokenizer=given.tokenizer, out=given.output_dir)
        print(f"about {projection.tokens:,.0f} tokens, {projection.disk_bytes / 1e9:.2f} GB on disk")
        for line in projection.workers:
            print(f"{line.workers} workers: about {line.seconds:,.0f} s, {line.memory_bytes / 1e9:.2f} GB of memory")
        return
    store = tokpress.build(
        given.input_dir,
        tokenizer=given.tokenizer,
        out=given.output_dir,
        workers=given.num_workers,
        memory=given.memory,
    )
    made = tokpress.export(store, to="parquet", out=f"{given.output_dir}-parquet")
    run = store.manifest.run
    print(f"{store.num_docs:,} documents, {store.num_tokens:,} tokens, {run.peak_memory_bytes / 1e9:.2f} GB at most")
    print(f"{len(made.files)} Parquet files in {given.output_dir}-parquet")


if __name__ == "__main__":
    main()
