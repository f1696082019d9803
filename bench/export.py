"""How fast a store becomes each format, against `cp` and a sync of the same token bytes.

    python bench/export.py            400 MB of text, 5 rounds, prints Markdown
    python bench/export.py --quick    100 MB, one round, to see that it works

Documents of real text, Llama 3 tokenizer (u32 ids; for nanoGPT, which has 16 bits, bytes as tokens). MB/s of the store's
token bytes, synced, with one thread and with one a core; a round is a copy and an export of each format, and the ratios
are medians over rounds. Formats that link are done when their index is written.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
from time import perf_counter
from typing import Any

import corpus
import measure

import tokpress
from tokpress.formats import FORMATS
from tokpress.formats.base import open_format
from tokpress.machine import usable_cores

OUT = corpus.DATA / "export"
SEQ_LEN = 2048


def copied(store: tokpress.Store) -> float:
    """Seconds that `cp` and `sync` take for the token files."""
    target = OUT / "copy"
    target.mkdir()
    files = sorted((store.path / "shards").glob("*.bin"))
    began = perf_counter()
    subprocess.run(["cp", "--reflink=never", *files, target], check=True)
    subprocess.run(["sync", *(target / file.name for file in files)], check=True)
    seconds = perf_counter() - began
    shutil.rmtree(target)
    return seconds


def exported(store: tokpress.Store, to: str, workers: int, **options: Any) -> float:
    began = perf_counter()
    tokpress.export(store, to=to, out=OUT / "out", workers=workers, **options)
    seconds = perf_counter() - began
    shutil.rmtree(OUT / "out")
    return seconds


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """What it is called, the format, and its options."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for to in FORMATS:
        form = open_format(to)
        if form.seq_len != "must":
            found.append((to, to, {}))
        if form.seq_len != "no" and to != "litdata":
            found.append((f"{to}, sequences", to, {"seq_len": SEQ_LEN, "method": "concat"}))
    return [*found, ("megatron, merged", "megatron", {"merge": True})]


def measured(store: tokpress.Store, name: str, to: str, options: dict[str, Any], rounds: int) -> None:
    size = store.num_tokens * store.dtype.itemsize / 1e6
    cores = usable_cores()
    times: dict[str, list[float]] = {"cp": [], "one": [], "all": []}
    for _ in range(rounds):
        times["cp"].append(copied(store))
        times["one"].append(exported(store, to, 1, **options))
        times["all"].append(exported(store, to, cores, **options))
    ratio = statistics.median(cp / ours for cp, ours in zip(times["cp"], times["all"], strict=True))
    rates = [f"{size / statistics.median(times[which]):,.0f}" for which in ("one", "all", "cp")]
    print(f"| {name} | {' | '.join(rates)} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 5)
    source = corpus.jsonl_of((100 if args.quick else 400) * 10**6)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    options: dict[str, Any] = {"shard_size": "32MB"}
    wide = tokpress.build(source, tokenizer=corpus.llama3(), out=OUT / "wide", **options)
    narrow = tokpress.build(source, tokenizer="bytes", out=OUT / "narrow", **options)
    print(f"{measure.machine()}; {wide.num_tokens / 1e6:,.1f} M tokens in {wide.num_docs:,} documents\n")
    print(f"| format | 1 thread, MB/s | {usable_cores()} threads | `cp` + `sync` | times `cp` |\n|---|---|---|---|---|")
    try:
        for name, to, chosen in cases():
            measured(wide if open_format(to).holds_u32 else narrow, name, to, chosen, rounds)
    finally:
        shutil.rmtree(OUT)


if __name__ == "__main__":
    main()
