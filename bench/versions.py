"""Is this version slower than an earlier one? Builds and loads with both, in alternating pairs.

    python bench/versions.py COMMIT                 five pairs of each row, about 20 minutes, prints Markdown
    python bench/versions.py COMMIT --only loader

The earlier version is a work tree of its commit in bench/.data, run by this environment. Whoever goes first changes from
pair to pair; every pair is shown, and the median of their ratios counts. Each version's loader is timed by its own
bench/loader.py, on one store that the earlier version built.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import corpus
import measure

SEQ_LEN = 2048
Run = Callable[[Path], float]  # a version's work tree -> how fast it was


def work_tree(commit: str) -> Path:
    tree = corpus.DATA.resolve() / "versions" / commit
    if not tree.is_dir():
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=corpus.ROOT, check=True)
    return tree


def built(tree: Path, out: Path, source: Path) -> measure.Measured:
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "tokpress", "build", str(source), "--tokenizer", str(corpus.llama3())]
    return measure.run([*command, "--out", str(out), "--workers", "2", "--quiet"], PYTHONPATH=str(tree / "src"))


def pairs(title: str, old: Path, run: Run, rounds: int) -> dict[str, list[float]]:
    """Rates of both, in the order of the rounds."""
    found: dict[str, list[float]] = {"old": [], "new": []}
    trees = {"old": old, "new": corpus.ROOT.resolve()}
    for number in range(rounds):
        for version in ("old", "new") if number % 2 == 0 else ("new", "old"):
            found[version].append(run(trees[version]))
    ratios = [new / old for new, old in zip(found["new"], found["old"], strict=True)]
    shown = [", ".join(f"{rate:,.0f}" for rate in found[version]) for version in ("old", "new")]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"| {title} | {shown[0]} | {shown[1]} | {each} | {statistics.median(ratios):.2f} |", flush=True)
    return found


def compare_builds(old: Path, rounds: int) -> None:
    source, out = corpus.all_jsonl(), corpus.DATA / "versions" / "out"
    size = source.stat().st_size / 1e6
    title = f"build, {size:,.0f} MB, two workers, start-up included, MB/s"
    pairs(title, old, lambda tree: size / built(tree, out, source).seconds, rounds)
    shutil.rmtree(out)


def compare_loaders(old: Path, rounds: int, seconds: float) -> None:
    store = corpus.DATA / "versions" / "store"
    built(old, store, corpus.jsonl_of(400 * 10**6))

    def run(tree: Path, output: str, *, busy: bool) -> float:
        measure.bring_to_memory(store)
        command = [sys.executable, str(tree / "bench" / "loader.py"), "--contender", output, str(store)]
        environment = os.environ | {"PYTHONPATH": str(tree / "src")}
        with measure.busy_process() if busy else nullcontext():
            done = subprocess.run(
                [*command, str(SEQ_LEN), str(seconds), "stored"], check=True, stdout=subprocess.PIPE, env=environment
            )
        return float(json.loads(done.stdout)["tokens_per_s"]) / 1e6

    for output in ("arrays", "tensors"):
        title = f"loader, {output} of 32 bits, {SEQ_LEN:,} x 16, M tokens/s"
        idle = pairs(title, old, partial(run, output=output, busy=False), rounds)
        busy = pairs(f"{title}, beside one busy process", old, partial(run, output=output, busy=True), rounds)
        kept = statistics.median(busy["new"]) / statistics.median(idle["new"])
        print(f"| of its idle rate the new one keeps, beside a busy process | | | | {kept:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="for each run of a loader")
    parser.add_argument("--only", choices=("build", "loader"), nargs="+", default=("build", "loader"))
    args = parser.parse_args()
    old = work_tree(args.commit)
    print(f"{measure.machine()}; old is {args.commit}\n")
    print("| | old | new | new / old, pair by pair | median |\n|---|---|---|---|---|", flush=True)
    if "build" in args.only:
        compare_builds(old, args.rounds)
    if "loader" in args.only:
        compare_loaders(old, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
