"""How fast one process builds a store, against the fast encoder alone and against the reference library.

    python bench/build.py            rates on the whole corpus and memory on 1 GB and 4 GB files; prints Markdown
    python bench/build.py --quick    the same on 100 MB, to see that it works

Every contender is a process of its own, start-up included, on the same file in the same run, one after the other and
several times over; ratios are medians over pairs. tokpress also proves parity, audits, checksums and syncs to disk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import corpus
import measure

ENCODE_FILES = """
import sys, gigatoken
tokenizer = gigatoken.Tokenizer(sys.argv[2])
tokenizer.encode_files(gigatoken.JsonlFileSource([sys.argv[1]], field="text"), parallel=False)
"""
ENCODE_BATCH_FAST = """
import os, sys, json
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[2])
with open(sys.argv[1], "rb") as file, open(sys.argv[3], "wb") as out:
    texts = []
    for line in file:
        texts.append(json.loads(line)["text"])
        if len(texts) == 256:
            for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
                numpy.array(encoding.ids, numpy.uint32).tofile(out)
            texts = []
    for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
        numpy.array(encoding.ids, numpy.uint32).tofile(out)
"""


def build(source: Path, out: Path) -> measure.Measured:
    shutil.rmtree(out, ignore_errors=True)
    command = ["-m", "tokpress", "build", str(source), "--tokenizer", str(corpus.llama3()), "--out", str(out)]
    measured = measure.run([sys.executable, *command, "--workers", "1", "--quiet"])
    shutil.rmtree(out)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    source = corpus.jsonl_of(100 * 10**6) if args.quick else corpus.all_jsonl()
    slice_ = corpus.jsonl_of(20 * 10**6)  # the reference takes too long for the whole file
    tokenizer = str(corpus.llama3() / "tokenizer.json")
    out = corpus.DATA / "out"

    ours, encode_files = [], []
    for _ in range(args.rounds):
        encode_files.append(measure.run([sys.executable, "-c", ENCODE_FILES, str(source), tokenizer]))
        ours.append(build(source, out))
    loop = [sys.executable, "-c", ENCODE_BATCH_FAST, str(slice_), tokenizer, str(corpus.DATA / "ids")]
    reference = [measure.run(loop) for _ in range(max(args.rounds // 2, 1))]
    rates = {
        "tokpress build --workers 1": (source, measure.median(ours)),
        "gigatoken.encode_files(parallel=False), nothing written": (source, measure.median(encode_files)),
        "loop over tokenizers.encode_batch_fast, one thread": (slice_, measure.median(reference)),
    }
    mb_per_s = {name: path.stat().st_size / 1e6 / run.seconds for name, (path, run) in rates.items()}
    our_rate, _, reference_rate = mb_per_s.values()
    print(f"{measure.machine()}; {source.stat().st_size / 1e6:,.0f} MB of JSONL, Llama 3 tokenizer, one process\n")
    print("| one process, start-up included | MB/s | CPU s / wall s | peak memory |\n|---|---|---|---|")
    for name, (_, run) in rates.items():
        times = f"{run.cpu_seconds:,.1f} / {run.seconds:,.1f}"
        print(f"| {name} | {mb_per_s[name]:,.1f} | {times} | {run.peak_bytes / 1e6:,.0f} MB |")
    print(f"\ntokpress / encode_files: {measure.median_ratio(ours, encode_files):.2f} (median of {args.rounds} pairs)")
    print(f"tokpress / encode_batch_fast: {our_rate / reference_rate:.1f}\n")

    print("| file | peak memory of tokpress build |\n|---|---|")
    for size in (50 * 10**6, 200 * 10**6) if args.quick else (10**9, 4 * 10**9):
        print(f"| {size / 1e9:g} GB | {build(corpus.jsonl_of(size), out).peak_bytes / 1e6:,.0f} MB |")


if __name__ == "__main__":
    main()
