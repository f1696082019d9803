"""Whether --memory holds where it is hardest: one file of 4 GB whose lines have 50 MB each.

    python bench/memory.py            4 GB; prints Markdown
    python bench/memory.py --quick    600 MB

Peak memory is the sum over all processes of the run, as the run itself measured it, against the budget that was given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import corpus
import measure

LINE_BYTES = 50 * 10**6
OUT = corpus.DATA / "out-memory"


def long_lines(size: int) -> Path:
    """The corpus with so many documents joined into one that a line has 50 MB."""
    path = corpus.DATA / f"{size // 10**6}MB-long.jsonl"
    if not path.is_file():
        with corpus.jsonl_of(size).open("rb") as source, path.open("w") as file:
            texts: list[str] = []
            held = 0
            for line in source:
                texts.append(json.loads(line)["text"])
                held += len(texts[-1])
                if held >= LINE_BYTES:
                    file.write(json.dumps({"text": "".join(texts)}) + "\n")
                    texts, held = [], 0
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    source = long_lines(600 * 10**6 if parser.parse_args().quick else 4 * 10**9)
    print(f"{measure.machine()}; {source.stat().st_size / 1e6:,.0f} MB of JSONL in lines of 50 MB, Llama 3 tokenizer\n")
    print("| --memory | workers | peak | of the budget | MB/s |\n|---|---|---|---|---|")
    for memory, workers in (("1.5GB", 1), ("2GB", 2), ("4GB", 2), ("4GB", 3)):
        shutil.rmtree(OUT, ignore_errors=True)
        command = ["-m", "tokpress", "build", str(source), "--tokenizer", str(corpus.llama3()), "--out", str(OUT)]
        result = subprocess.run(
            [sys.executable, *command, "--memory", memory, "--workers", str(workers), "--quiet"],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            print(f"| {memory} | {workers} | {result.stderr.strip()} | | |", flush=True)
            continue
        run = json.loads((OUT / "manifest.json").read_bytes())["run"]
        share = run["peak_memory_bytes"] / (float(memory.removesuffix("GB")) * 1e9)
        peak = f"{run['peak_memory_bytes'] / 1e6:,.0f} MB"
        print(f"| {memory} | {run['workers']} | {peak} | {share:.2f} | {run['input_mb_per_s']:.0f} |", flush=True)
    shutil.rmtree(OUT, ignore_errors=True)


if __name__ == "__main__":
    main()
