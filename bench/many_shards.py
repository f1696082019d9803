"""How soon the first batch comes out of a store of 100,000 shards and 10^13 tokens, and how many maps that takes.

    python bench/many_shards.py              a minute, prints Markdown
    python bench/many_shards.py --shards N   fewer

The files are real, 300,000 of them, but take no room: tokens are a hole, and names are links. Every round is a process
that opens the store, makes a loader and takes a shuffled batch; what it imports is loaded before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROUNDS = 5
MORE_BATCHES = 1_000
_LINKS = 50_000  # that a file may have


def make_files(directory: Path, shards: int) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from store.many_shards import make

    make(directory, shards)
    (directory / "shards").mkdir()
    for extension in ("bin", "ends", "pos"):
        source = directory / f"any.{extension}"
        for unit in range(shards):
            if unit and unit % _LINKS == 0:
                source = Path(shutil.copy(source, directory / f"any{unit}.{extension}"))
            os.link(source, directory / "shards" / f"train-{unit:05d}-000.{extension}")


def measure(directory: str) -> dict[str, float]:
    import tokpress

    _ = tokpress.Loader, tokpress.PretokenizedDataset  # imported when first named
    began = perf_counter()
    data = tokpress.PretokenizedDataset(directory, seq_len=2048, output="numpy")
    opened = perf_counter()
    batches = iter(tokpress.Loader(data, batch_size=16, seed=0))
    next(batches)
    first = perf_counter()
    for _ in range(MORE_BATCHES):
        next(batches)
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    return {"open_s": opened - began, "first_batch_s": first - began, "maps": maps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        make_files(store, options.shards)
        rounds = []
        for _ in range(ROUNDS):
            said = subprocess.run([sys.executable, __file__, "--measure", str(store)], capture_output=True, check=True)
            rounds.append(json.loads(said.stdout))
    print(f"| of {options.shards:,} shards, median of {ROUNDS} | |\n|---|---|")
    for name, what in (("open_s", "opened, s"), ("first_batch_s", "first batch, s")):
        print(f"| {what} | {statistics.median(found[name] for found in rounds):.2f} |")
    print(f"| maps after {MORE_BATCHES:,} batches | {max(found['maps'] for found in rounds):,.0f} |")


if __name__ == "__main__":
    main()
