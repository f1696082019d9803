"""Batches from stores that are not in memory, or larger than it. Part of `python bench/loader.py`.

An epoch of a store of which nothing is in memory; the loader's own memory over a while; and of a store of 10^12 tokens
(sparse files) the time to the first batch, and to the next one after resuming in the middle. Each in a process of its own.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import corpus
import msgspec
import numpy as np

import tokpress
from tokpress.records import FileEntry
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest, write_manifest

BATCH = 16
HUGE_SHARDS, HUGE_SHARD_TOKENS, HUGE_DOC_TOKENS = 1000, 10**9, 10**6


def anonymous_bytes() -> int:
    """Memory that is the process's own; pages of mapped files are the system's cache."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def tokens_of(store: tokpress.Store) -> Path:
    """The one shard's ids."""
    return store.path / "shards" / f"{store.manifest.splits['train'].shards[0].name}.bin"


def huge_store() -> Path:
    """10^12 tokens that take no room: every file is a hole but the document ends."""
    out = corpus.DATA / "loader-huge"
    shutil.rmtree(out, ignore_errors=True)
    source = corpus.DATA / "one.jsonl"
    source.write_text('{"text": "a"}\n')
    tokpress.build(source, tokenizer="bytes", out=out)
    manifest = read_manifest(LocalStorage(out))
    split = manifest.splits["train"]
    docs = HUGE_SHARD_TOKENS // HUGE_DOC_TOKENS
    ends = (np.arange(1, docs + 1, dtype="<i8") * HUGE_DOC_TOKENS).tobytes()
    files = {"bin": 2 * HUGE_SHARD_TOKENS, "ends": 8 * docs, "pos": 8 * docs}
    entries = {extension: FileEntry(size, "0" * 16) for extension, size in files.items()}
    shards = []
    for number in range(HUGE_SHARDS):
        numbers = {"number": number, "docs": docs, "tokens": HUGE_SHARD_TOKENS}
        shards.append(msgspec.structs.replace(split.shards[0], **numbers, sources=[(0, docs)], files=entries))
        for extension, size in files.items():
            with (out / shards[-1].path(extension)).open("wb") as file:
                file.truncate(size)
        (out / shards[-1].path("ends")).write_bytes(ends)
    totals = {"docs": docs * HUGE_SHARDS, "tokens": HUGE_SHARD_TOKENS * HUGE_SHARDS}
    huge = msgspec.structs.replace(split, shards=shards, **totals)
    write_manifest(LocalStorage(out), msgspec.structs.replace(manifest, splits={"train": huge}))
    return out


def run_huge(store: str) -> dict[str, float]:
    """From nothing open to the first batch, and to the next one in the middle; everything is imported already."""
    tokpress.PretokenizedDataset, tokpress.Loader  # noqa: B018 - imports them

    def opened() -> tokpress.Loader:
        data = tokpress.PretokenizedDataset(store, seq_len=2048, output="numpy")
        return tokpress.Loader(data, batch_size=BATCH)

    began = perf_counter()
    loader = opened()
    batches = iter(loader)
    next(batches)
    first = perf_counter() - began
    state = loader.state_dict()
    middle = len(loader) // 2
    state |= {"samples": middle * BATCH, "step": middle}
    del batches  # a run that is resumed has no other beside it that is still making batches
    began = perf_counter()
    loader = opened()
    loader.load_state_dict(state)
    batches = iter(loader)
    next(batches)
    return {"first_ms": first * 1e3, "resume_ms": (perf_counter() - began) * 1e3, "memory": anonymous_bytes()}


def huge(rounds: int) -> None:
    store = huge_store()
    command = [sys.executable, __file__, "huge", str(store)]
    runs = [json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(rounds)]
    shutil.rmtree(store)
    first, resume, memory = (statistics.median(run[key] for run in runs) for key in ("first_ms", "resume_ms", "memory"))
    print(f"{HUGE_SHARDS * HUGE_SHARD_TOKENS:.0e} tokens in {HUGE_SHARDS:,} shards (median of {rounds}):")
    print(f"first batch after {first:.0f} ms, resumed in the middle after {resume:.0f} ms, {memory / 1e6:.0f} MB\n")


def run_cold(store: str, seq_len: int, contender: str) -> dict[str, float]:
    """One epoch of a store of which nothing is in memory; everything is imported already."""
    tokpress.PretokenizedDataset, tokpress.Loader  # noqa: B018 - imports them
    opened = tokpress.open(store)
    for path in sorted((opened.path / "shards").glob("*.bin")):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    batches: Iterator[Any]
    began = perf_counter()
    if contender == "loader":
        data = tokpress.PretokenizedDataset(
            opened, seq_len=seq_len, fields=["input_ids"], dtype=opened.dtype, output="numpy"
        )
        batches = iter(tokpress.Loader(data, batch_size=BATCH))
    else:
        tokens = np.memmap(tokens_of(opened), opened.dtype, "r")
        tokens._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
        rows = tokens[: len(tokens) // seq_len * seq_len].reshape(-1, seq_len)
        order = np.random.default_rng(0).permutation(len(rows))
        batches = (rows[order[start : start + BATCH]] for start in range(0, len(rows) - BATCH + 1, BATCH))
    next(batches)
    first = perf_counter() - began
    count = 1 + sum(1 for _ in batches)
    return {"first_ms": first * 1e3, "tokens_per_s": count * BATCH * seq_len / (perf_counter() - began)}


def cold(store: tokpress.Store, seq_len: int, rounds: int) -> None:
    names = {"loader": "tokpress.Loader as it comes", "gather": "bare NumPy gather from a map advised for random reads"}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, runs in found.items():
            command = [sys.executable, __file__, "cold", str(store.path), str(seq_len), name]
            runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    print(
        f"| seq_len {seq_len:,}, nothing in memory yet, {store.manifest.dtype} | first batch | M tokens/s |\n|---|---|---|"
    )
    for name, runs in found.items():
        first, rate = (statistics.median(run[key] for run in runs) for key in ("first_ms", "tokens_per_s"))
        print(f"| {names[name]} | {first:,.0f} ms | {rate / 1e6:,.1f} |")
    both = zip(found["loader"], found["gather"], strict=True)
    ratio = statistics.median(mine["tokens_per_s"] / bare["tokens_per_s"] for mine, bare in both)
    print(f"\n{names['loader']} / {names['gather']}: {ratio:.2f} (median of {rounds})\n", flush=True)


def run_steady(store: str, seconds: float) -> dict[str, float]:
    """The loader as it comes, for a while: its own memory after a fifth of the time and at the end."""
    data = tokpress.PretokenizedDataset(store, seq_len=2048, output="numpy")
    loader = tokpress.Loader(data, batch_size=BATCH, max_epochs=math.inf)
    batches, memory = iter(loader), []
    for part in (seconds / 5, seconds * 4 / 5):
        began = perf_counter()
        while perf_counter() - began < part:
            next(batches)
        memory.append(anonymous_bytes())
    return {"early": memory[0], "late": memory[1], "samples": loader.state_dict()["samples"]}


def steady(store: tokpress.Store, seconds: float) -> None:
    command = [sys.executable, __file__, "steady", str(store.path), str(seconds)]
    run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"Own memory after {seconds / 5:.0f} s: {run['early'] / 1e6:.1f} MB, after {seconds:.0f} s and ", end="")
    print(f"{run['samples']:,} sequences: {run['late'] / 1e6:.1f} MB\n", flush=True)


if __name__ == "__main__":
    what, path, *rest = sys.argv[1:]
    if what == "huge":
        found = run_huge(path)
    elif what == "cold":
        found = run_cold(path, int(rest[0]), rest[1])
    else:
        found = run_steady(path, float(rest[0]))
    print(json.dumps(found))
