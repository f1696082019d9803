"""How fast a store is built: one process against the encoder alone, two workers against one and against the peers.

    python bench/build.py            on the whole corpus; takes about 40 minutes, prints Markdown
    python bench/build.py --quick    the same on 100 MB, to see that it works

Every contender is a process of its own, start-up included, on the same file in the same run, one after the other and
several times over; ratios are medians over pairs. tokpress also proves parity, audits, checksums and syncs to disk. Peers
that take 50 times as long get a slice of the file; theirs are rates, ours too. What being crash-safe costs is found by
builds that sync no shard: a module that Python loads at its start takes `os.fsync` away, and either syncs once at the end,
so that the same bytes reach the disk, or never.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import measure

PEERS = Path(__file__).with_name("peers.py")
PEERS_ENVIRONMENT = corpus.ROOT / "bench" / ".venv-peers"
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
OUT = corpus.DATA / "out"


def build(
    source: Path, workers: int, *options: str, tokenizer: Path | None = None, sync: str = "shards"
) -> tuple[measure.Measured, dict[str, Any]]:
    """A build, measured from outside, and what it says of itself: its run, and which tokens with which engine."""
    shutil.rmtree(OUT, ignore_errors=True)
    named = ["--tokenizer", str(tokenizer or corpus.llama3()), "--out", str(OUT)]
    command = ["-m", "tokpress", "build", str(source), *named, "--workers", str(workers), "--quiet", *options]
    environment = {} if sync == "shards" else {"PYTHONPATH": str(_without_fsync(sync))}
    measured = measure.run([sys.executable, *command], **environment)
    manifest: dict[str, Any] = json.loads((OUT / "manifest.json").read_bytes())
    shutil.rmtree(OUT)
    return measured, manifest["run"] | {key: manifest[key] for key in ("fingerprint", "parity")}


def _without_fsync(sync: str) -> Path:
    directory = corpus.DATA / f"sync-{sync}"
    directory.mkdir(exist_ok=True)
    lines = ["import atexit, os, sys", "os.fsync = lambda descriptor: None"]
    if sync == "end":
        lines.append("atexit.register(lambda: os.sync() if 'build' in sys.argv else None)")
    (directory / "sitecustomize.py").write_text("\n".join(lines))
    return directory


def peer(name: str, source: Path | str) -> measure.Measured:
    if not (PEERS_ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS_ENVIRONMENT], check=True)
        pip = [str(PEERS_ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "-r", str(PEERS.with_suffix(".txt"))]
        subprocess.run(pip, check=True)
        (PEERS_ENVIRONMENT / "ready").touch()
    out = corpus.DATA / f"out-{name}"
    tokenizer = str(corpus.llama3() / "tokenizer.json")
    try:
        python = str(PEERS_ENVIRONMENT / "bin" / "python")
        return measure.run([python, str(PEERS), name, str(source), tokenizer, str(out)])
    finally:
        for leftover in corpus.DATA.glob(f"out-{name}*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def rate(source: Path, runs: Sequence[measure.Measured]) -> float:
    return source.stat().st_size / 1e6 / measure.median(runs).seconds


def row(name: str, source: Path, runs: Sequence[measure.Measured]) -> None:
    run = measure.median(runs)
    times = f"{run.cpu_seconds:,.1f} / {run.seconds:,.1f}"
    print(f"| {name} | {rate(source, runs):,.1f} | {times} | {run.peak_bytes / 1e6:,.0f} MB |", flush=True)


def one_process(source: Path, slice_: Path, rounds: int) -> None:
    tokenizer = str(corpus.llama3() / "tokenizer.json")
    ours, encode_files = [], []
    for _ in range(rounds):
        encode_files.append(measure.run([sys.executable, "-c", ENCODE_FILES, str(source), tokenizer]))
        ours.append(build(source, 1)[0])
    loop = [sys.executable, "-c", ENCODE_BATCH_FAST, str(slice_), tokenizer, str(corpus.DATA / "ids")]
    reference = [measure.run(loop) for _ in range(max(rounds // 2, 1))]
    print("| one worker, start-up included | MB/s | CPU s / wall s | peak memory |\n|---|---|---|---|")
    row("tokpress build --workers 1", source, ours)
    row("gigatoken.encode_files(parallel=False), nothing written", source, encode_files)
    row("loop over tokenizers.encode_batch_fast, one thread", slice_, reference)
    print(f"\ntokpress / encode_files: {measure.median_ratio(ours, encode_files):.2f} (median of {rounds} pairs)")
    print(f"tokpress / encode_batch_fast: {rate(source, ours) / rate(slice_, reference):.1f}\n", flush=True)


def two_workers(source: Path, rounds: int) -> None:
    one, two, uses = [], [], []
    for _ in range(rounds):
        one.append(build(source, 1)[0])
        measured, facts = build(source, 2)
        two.append(measured)
        uses.append(facts["cpu_use"])
    size = f"{source.stem}, {source.stat().st_size / 1e6:,.0f} MB"
    print(f"| {size}, start-up included | MB/s | CPU s / wall s | peak memory of one process |\n|---|---|---|---|")
    row("tokpress build --workers 1", source, one)
    row("tokpress build --workers 2", source, two)
    print(f"\ntwo workers / one: {measure.median_ratio(two, one):.2f} (median of {rounds} pairs)")
    print(f"CPU use of the workers: {sorted(uses)[len(uses) // 2]:.0%}\n", flush=True)


def durability(source: Path, rounds: int) -> None:
    """Many short pairs: what is looked for is smaller than the difference between two runs of the same."""
    runs: dict[str, list[measure.Measured]] = {"shards": [], "never": [], "end": []}
    for number in range(rounds):
        for sync in list(runs) if number % 2 else reversed(list(runs)):  # what warms up, warms up for all
            runs[sync].append(build(source, 2, sync=sync)[0])
    size = f"{source.stat().st_size / 1e6:,.0f} MB"
    print(f"| {size}, two workers | MB/s | CPU s / wall s | peak memory of one process |\n|---|---|---|---|")
    row("every shard synced", source, runs["shards"])
    row("synced once at the end", source, runs["end"])
    row("never synced", source, runs["never"])
    for other in ("end", "never"):
        cost = measure.median_ratio(runs[other], runs["shards"]) - 1
        print(f"\nwhat syncing every shard costs, against {other}: {cost:.1%} (median of {rounds})", flush=True)
    print()


def sentencepiece(source: Path, rounds: int) -> None:
    """Mistral's BPE model and a unigram model: the engine that is found, and the library."""
    for name, model in (("BPE", corpus.mistral()), ("unigram", corpus.unigram())):
        ours, library = [], []
        for _ in range(rounds):
            measured, found = build(source, 2, "--memory", "1GB", tokenizer=model)
            ours.append(measured)
            measured, expected = build(source, 2, "--memory", "1GB", "--engine", "sentencepiece", tokenizer=model)
            library.append(measured)
            assert found["fingerprint"] == expected["fingerprint"]
        size = f"{source.stat().st_size / 1e6:,.0f} MB"
        print(
            f"| {size}, SentencePiece {name}, two workers, 1 GB | MB/s | CPU s / wall s | peak memory of one process |"
        )
        print("|---|---|---|---|")
        row(f"tokpress build ({found['parity']['engine']})", source, ours)
        row("tokpress build --engine sentencepiece", source, library)
        ratio = measure.median_ratio(ours, library)
        print(
            f"\ntokpress / --engine sentencepiece: {ratio:.2f} (median of {rounds} pairs), tokens equal\n", flush=True
        )


def peers(source: Path, slice_: Path, rounds: int) -> None:
    two, in_memory, batched = [], [], []
    for _ in range(rounds):
        two.append(build(source, 2)[0])
        in_memory.append(peer("in-memory", source))
        batched.append(peer("batched", source))
    size = f"{source.stat().st_size / 1e6:,.0f} MB in {sum(1 for _ in source.open('rb')):,} documents"
    print(f"| {size}, start-up included | MB/s | CPU s / wall s | peak memory of one process |\n|---|---|---|---|")
    row("tokpress build --workers 2", source, two)
    row("gigatoken.encode_files in memory, then a write a document", source, in_memory)
    row("gigatoken.encode_files in memory, then one write", source, batched)
    ratios = {"a write a document": measure.median_ratio(two, in_memory)}
    ratios["one write"] = measure.median_ratio(two, batched)
    for name in ("datasets", "datatrove"):
        runs = [peer(name, corpus.in_two_files(slice_))]
        row(f"{name}, 2 processes", slice_, runs)
        ratios[name] = rate(source, two) / rate(slice_, runs)
    print(
        "\ntwo workers against", ", ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()), "\n", flush=True
    )


def memory(sizes: Sequence[int]) -> None:
    print("| file | peak memory of tokpress build --workers 1 |\n|---|---|")
    for size in sizes:
        _, facts = build(corpus.jsonl_of(size), 1)
        print(f"| {size / 1e9:g} GB | {facts['peak_memory_bytes'] / 1e6:,.0f} MB |", flush=True)


def main() -> None:
    sections = ("one-process", "two-workers", "durability", "sentencepiece", "peers", "memory")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sections, nargs="+", default=sections)
    args = parser.parse_args()
    scale = 10**8 if args.quick else 10**9
    source = corpus.jsonl_of(scale) if args.quick else corpus.all_jsonl()
    slice_ = corpus.jsonl_of(20 * 10**6)
    prose = corpus.jsonl_of(3 * scale, prose=True)
    print(f"{measure.machine()}; JSONL, Llama 3 tokenizer\n", flush=True)
    if "one-process" in args.only:
        one_process(source, slice_, args.rounds)
    if "two-workers" in args.only:
        two_workers(source, args.rounds)
        two_workers(corpus.jsonl_of(4 * scale), args.rounds)
        two_workers(prose, args.rounds)
    if "durability" in args.only:
        durability(corpus.jsonl_of(6 * scale // 10), 3 * args.rounds)
    if "sentencepiece" in args.only:
        sentencepiece(corpus.jsonl_of(4 * scale // 10), args.rounds)
    if "peers" in args.only:
        rounds = max(args.rounds // 2, 1)
        peers(source, slice_, rounds)
        peers(prose, corpus.jsonl_of(20 * 10**6, prose=True), rounds)
    if "memory" in args.only:
        memory((scale, 4 * scale))


if __name__ == "__main__":
    main()
