"""What Ray costs: a build on a Ray cluster of one machine beside the same build with local processes.

    .venv-ray/bin/python bench/ray_overhead.py            2 GB, five pairs in turns, prints Markdown; a quarter of an hour
    .venv-ray/bin/python bench/ray_overhead.py --quick    100 MB and one pair, to see that it works

Both write the same store with two workers. Start-up is shown apart: all until the first unit is begun, which is Ray's own
start, the agent's, the tokenizer and the proof of the engine. What is compared is the time from there to the manifest.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import corpus
import measure

from tokpress.run import events
from tokpress.run.event_log import read_events

PAIRS = 5
WORKERS = 2


def build(source: Path, directory: Path, executor: str) -> tuple[float, float]:
    """Seconds until the first unit was begun, and from there to the end."""
    out, log = directory / "store", directory / "events.jsonl"
    shutil.rmtree(out, ignore_errors=True)
    log.unlink(missing_ok=True)
    measure.run(
        [
            *(sys.executable, "-m", "tokpress", "build", str(source), "--tokenizer", str(corpus.llama3())),
            *("--out", str(out), "--workers", str(WORKERS), "--quiet", "--events", str(log), "--executor", executor),
        ],
        RAY_AUTH_MODE="disabled",
        RAY_USAGE_STATS_ENABLED="0",
    )
    times = {type(event): event.time for event in read_events(log)}
    started, finished = times[events.Started], times[events.Finished]
    return started, finished - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    source = corpus.jsonl_of(10**8 if options.quick else 2 * 10**9)
    found: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory(dir=corpus.DATA) as temporary:
        subprocess.run(["cat", str(source)], stdout=subprocess.DEVNULL, check=True)  # into memory
        for pair in range(1 if options.quick else options.pairs):
            for executor in ("local", "ray") if pair % 2 == 0 else ("ray", "local"):
                found[executor].append(build(source, Path(temporary), executor))
    ratios = [ray / local for (_, local), (_, ray) in zip(found["local"], found["ray"], strict=True)]
    print(f"{source.stat().st_size / 1e9:.1f} GB, {WORKERS} workers, {measure.machine()}\n")
    print("| executor | start-up, s | the build, s, each | median |\n|---|---|---|---|")
    for executor, runs in found.items():
        each = ", ".join(f"{seconds:.1f}" for _, seconds in runs)
        start, seconds = (statistics.median(run[i] for run in runs) for i in (0, 1))
        print(f"| {executor} | {start:.1f} | {each} | {seconds:.1f} |")
    print(f"\nRay / local, pair by pair: {', '.join(f'{ratio:.3f}' for ratio in ratios)}", end="; ")
    print(f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
