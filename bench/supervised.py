"""Puzzle records to `input.npy`, `target.npy` and `mask.npy`: tokpress against a loop in Python over the same tokenizer.

    python bench/supervised.py            1,000,000 records; a few minutes, prints Markdown
    python bench/supervised.py --quick    50,000, to see that it works

The tokenizer is Llama 3's. tokpress is two commands, `build --workers 2` and `export --to npy`, start-up and all, which
also prove parity, make checksums, sync and can be resumed. The loop reads a record, encodes prompt and completion together,
finds the mask from the tokens' offsets, and puts one row into each of three memory-mapped arrays: what such a script does.
It gets a slice of the records and the time of its start-up; what a record takes it is taken for all of them. Each runs three
times, one after the other, and the ratio is the median of theirs. At the end stands the memory that was held, beside what
the arrays have on disk.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

import corpus
import measure

MAX_LENGTH = 64
DIGITS = 12
RUNS = 3
LOOP_RECORDS = 50_000
LOOP = """
import itertools, json, sys
import numpy, tokenizers
source, tokenizer, out, records, length = *sys.argv[1:4], *map(int, sys.argv[4:6])
tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
end = tokenizer.token_to_id("<|end_of_text|>")
new = lambda name, dtype: numpy.lib.format.open_memmap(f"{out}/{name}.npy", "w+", dtype, (records, length))
inputs, targets, masks = new("input", "uint32"), new("target", "uint32"), new("mask", "uint8")
with open(source) as file:
    for row, line in enumerate(itertools.islice(file, records)):
        record = json.loads(line)
        encoding = tokenizer.encode(record["puzzle"] + record["answer"], add_special_tokens=False)
        ids = (encoding.ids + [end])[:length]
        learned = [int(start >= len(record["puzzle"])) for start, _ in encoding.offsets] + [1]
        inputs[row] = end
        targets[row] = end
        inputs[row, : len(ids)] = ids
        targets[row, : len(ids) - 1] = ids[1:]
        masks[row, : len(ids) - 1] = learned[1 : len(ids)]
for array in (inputs, targets, masks):
    array.flush()
"""


def puzzles(records: int) -> Path:
    path = corpus.DATA / f"puzzles-{records}.jsonl"
    if not path.is_file():
        corpus.DATA.mkdir(parents=True, exist_ok=True)
        rng = random.Random(0)
        with path.open("w") as file:
            for i in range(records):
                grid = " ".join("".join(rng.choices("0123456789.", k=DIGITS)) for _ in range(4))
                question = f"Row {i}: turn this grid around.\n{grid}\n"
                file.write(json.dumps({"id": i, "puzzle": question, "answer": grid[::-1]}) + "\n")
    return path


def ours(source: Path) -> list[measure.Measured]:
    """The build and the export."""
    store, arrays = corpus.DATA / "puzzle-store", corpus.DATA / "puzzle-arrays"
    for path in (store, arrays):
        shutil.rmtree(path, ignore_errors=True)
    fields = ["--prompt-field", "puzzle", "--completion-field", "answer"]
    build = ["build", str(source), *fields, "--tokenizer", str(corpus.llama3()), "--out", str(store), "--workers", "2"]
    export = ["export", str(store), "--to", "npy", "--max-length", str(MAX_LENGTH), "--out", str(arrays)]
    command = [sys.executable, "-m", "tokpress"]
    return [measure.run([*command, *build, "--quiet"]), measure.run([*command, *export, "--workers", "2"])]


def theirs(source: Path, records: int) -> measure.Measured:
    out = corpus.DATA / "loop-arrays"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    options = [str(source), str(corpus.llama3() / "tokenizer.json"), str(out), str(records), str(MAX_LENGTH)]
    return measure.run([sys.executable, "-c", LOOP, *options], TOKENIZERS_PARALLELISM="false")


def same_arrays(records: int) -> bool:
    """Whether both made the same of the first records."""
    import numpy as np

    for name in ("input", "target", "mask"):
        arrays = [
            np.load(corpus.DATA / d / f"{name}.npy", mmap_mode="r") for d in ("puzzle-arrays/train", "loop-arrays")
        ]
        if not np.array_equal(arrays[0][:records], arrays[1][:records]):
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    records = 50_000 if parser.parse_args().quick else 1_000_000
    sample = min(LOOP_RECORDS, records) // (5 if records < 10**6 else 1)
    source = puzzles(records)
    ratios, ours_seconds, loops, peak = [], [], [], 0
    for _ in range(RUNS):
        mine, start, loop = ours(source), theirs(source, 1), theirs(source, sample)
        seconds = sum(part.seconds for part in mine)
        ours_seconds.append(seconds)
        loops.append(start.seconds + (loop.seconds - start.seconds) / (sample - 1) * (records - 1))
        ratios.append(loops[-1] / seconds)
        peak = max(peak, *(part.peak_bytes for part in mine))
    disk = sum(path.stat().st_size for path in (corpus.DATA / "puzzle-arrays").rglob("*.npy"))
    print(
        f"{measure.machine()}; {records:,} records, {MAX_LENGTH} tokens a row; the same arrays: {same_arrays(sample)}\n"
    )
    print("| | seconds | records/s |\n|---|---|---|")
    for name, runs in ((f"a loop (of {sample:,})", loops), ("tokpress, 2 workers", ours_seconds)):
        middle = sorted(runs)[RUNS // 2]
        print(f"| {name} | {middle:,.1f} | {records / middle:,.0f} |")
    print(f"\nratio {sorted(ratios)[RUNS // 2]:.1f} ({min(ratios):.1f} to {max(ratios):.1f})\n")
    print(f"arrays on disk {disk / 1e6:,.0f} MB; the largest of our processes held {peak / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
