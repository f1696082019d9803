"""How fast batches come: tokpress.Loader against a bare NumPy gather, LitData and MosaicML Streaming, on the same tokens.

    python bench/loader.py            about 20 minutes, prints Markdown
    python bench/loader.py --quick    fewer tokens and rounds, to see that it works

Shuffled batches of 16 sequences, one process, every contender a process of its own, one after the other and several times
over; ratios are medians over rounds. The bare gather is what NumPy can do at most: rows of a memory map, in random order,
nothing else. The bare copy is what memory can: the same by torch, on all cores and megabytes at a time. The loader is
compared with the gather where it gives arrays, with the copy and the peers where it gives tensors, as they do. All deliver
ids as they are stored: of 16 bits where the vocabulary allows it, else of 32. Then an epoch of a store of which nothing is
in memory; and of a store of 10^12 tokens (sparse files) the time to the first batch, and to the next one after resuming in
the middle.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import corpus
import measure
import msgspec
import numpy as np

import tokpress
from tokpress.records import FileEntry
from tokpress.store.manifest import read_manifest, write_manifest

BATCH = 16
WARM_UP = 600  # batches: by then bundles have their full size, and the buffers are all there
PEERS = Path(__file__).with_name("loader_peers.py")
PEERS_ENVIRONMENT = corpus.ROOT / "bench" / ".venv-loaders"
MOSAICML = "mosaicml-streaming==0.13.0"
COPIED_BYTES = 2**23  # at once, by whoever only copies; as the loader does
HUGE_SHARDS, HUGE_SHARD_TOKENS, HUGE_DOC_TOKENS = 1000, 10**9, 10**6


def timed(next_batch: Callable[[], Any], seq_len: int, seconds: float) -> dict[str, float]:
    """Tokens a second, and by how much the process's own memory grew while it was measured."""
    for _ in range(WARM_UP):
        next_batch()
    before, batches, began = anonymous_bytes(), 0, perf_counter()
    while perf_counter() - began < seconds:
        for _ in range(20):
            next_batch()
        batches += 20
    rate = batches * BATCH * seq_len / (perf_counter() - began)
    return {"tokens_per_s": rate, "memory": anonymous_bytes(), "growth": anonymous_bytes() - before}


def anonymous_bytes() -> int:
    """Memory that is the process's own; pages of mapped files are the system's cache."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def run_gather(store: str, seq_len: int, seconds: float, dtype: str) -> dict[str, float]:
    """From the largest shard, in its own dtype or widened as a model wants it."""
    opened = tokpress.open(store)
    ids = max((opened.shard(i).ids for i in range(len(opened.shard_token_ends))), key=len)
    rows = ids[: len(ids) // seq_len * seq_len].reshape(-1, seq_len)
    rng = np.random.default_rng(0)

    def next_batch() -> Any:
        batch = rows[rng.integers(0, len(rows), BATCH)]
        return batch if dtype == "stored" else batch.astype(dtype)

    return timed(next_batch, seq_len, seconds)


def run_copy(store: str, seq_len: int, seconds: float, dtype: str) -> dict[str, float]:  # noqa: ARG001 - as stored
    """Memory's own speed: rows of a store in one shard, copied on all cores, many at a time, into the same two buffers."""
    import torch

    opened = tokpress.open(store)
    signed = torch.int16 if opened.dtype.itemsize == 2 else torch.int32
    whole = opened.num_tokens // seq_len * seq_len
    rows = torch.from_file(str(tokens_of(opened)), size=whole, dtype=signed).view(-1, seq_len)
    together = max(COPIED_BYTES // (BATCH * rows[0].nbytes), 1)
    buffers = [torch.empty(together * BATCH, seq_len, dtype=signed) for _ in range(2)]

    def batches() -> Iterator[Any]:
        while True:
            for buffer in buffers:
                torch.index_select(rows, 0, torch.randint(len(rows), (len(buffer),)), out=buffer)
                yield from buffer.view(together, BATCH, seq_len)

    return timed(batches().__next__, seq_len, seconds)


def run_tokpress(
    store: str, seq_len: int, seconds: float, dtype: str, *, threads: int, output: Literal["numpy", "torch"]
) -> dict[str, float]:
    opened = tokpress.open(store)
    data = tokpress.PretokenizedDataset(
        opened,
        seq_len=seq_len,
        fields=["input_ids"],
        dtype=opened.dtype if dtype == "stored" else dtype,
        output=output,
    )
    loader = tokpress.Loader(data, batch_size=BATCH, max_epochs=math.inf, threads=threads)
    return timed(iter(loader).__next__, seq_len, seconds)


def run_all_fields(store: str, seq_len: int, seconds: float, dtype: str) -> dict[str, float]:
    fields = ["input_ids", "labels", "position_ids", "cu_seqlens", "doc_ids", "loss_mask"]
    data = tokpress.PretokenizedDataset(
        store, seq_len=seq_len, fields=fields, dtype=dtype, output="torch", shift_labels=True, mask_across_docs=True
    )
    loader = tokpress.Loader(data, batch_size=BATCH, max_epochs=math.inf)
    return timed(iter(loader).__next__, seq_len, seconds)


CONTENDERS: dict[str, Callable[..., dict[str, float]]] = {
    "gather": run_gather,
    "copy": run_copy,
    "arrays": partial(run_tokpress, threads=0, output="numpy"),
    "tensors": partial(run_tokpress, threads=0, output="torch"),
    "ahead": partial(run_tokpress, threads=1, output="torch"),
    "all-fields": run_all_fields,
}


def contend(name: str, store: Path, seq_len: int, seconds: float, dtype: str) -> dict[str, float]:
    """One of ours, in a process of its own."""
    command = [sys.executable, __file__, "--contender", name, str(store), str(seq_len), str(seconds), dtype]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def peer(*arguments: object) -> dict[str, float]:
    if not (PEERS_ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS_ENVIRONMENT], check=True)
        pip = [str(PEERS_ENVIRONMENT / "bin" / "pip"), "install", "--quiet"]
        subprocess.run([*pip, "-r", str(PEERS.with_suffix(".txt"))], check=True)
        subprocess.run([*pip, "--no-deps", MOSAICML], check=True)
        (PEERS_ENVIRONMENT / "ready").touch()
    command = [str(PEERS_ENVIRONMENT / "bin" / "python"), str(PEERS), *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def store_of(size: int, tokenizer: Path) -> tokpress.Store:
    """The corpus in one shard: the bare gather needs all tokens in one map."""
    out = corpus.DATA / f"loader-{tokenizer.name}-{size // 10**6}MB"
    return tokpress.build(
        corpus.jsonl_of(size), tokenizer=tokenizer, out=out, workers=1, unit_size="1TB", shard_size="1TB"
    )


def tokens_of(store: tokpress.Store) -> Path:
    """The one shard's ids."""
    return store.path / "shards" / f"{store.manifest.splits['train'].shards[0].name}.bin"


def in_shards(size: int, tokenizer: Path) -> tokpress.Store:
    """The same as it is built if nobody asks for one shard."""
    out = corpus.DATA / f"loader-{tokenizer.name}-{size // 10**6}MB-shards"
    return tokpress.build(corpus.jsonl_of(size), tokenizer=tokenizer, out=out)


def bring_to_memory(directory: Path) -> None:
    """The system may have dropped what was not read for a while."""
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()


def compare(
    store: tokpress.Store,
    shards: tokpress.Store,
    seq_len: int,
    rounds: int,
    seconds: float,
    ours: Sequence[tuple[str, str]],
) -> None:
    """`ours`: contenders, and the dtype they are to deliver."""
    peers = {name: corpus.DATA / f"loader-{name}" for name in ("litdata", "mosaicml")}
    for name, out in peers.items():
        peer("write", name, tokens_of(store), store.manifest.dtype, seq_len, out)
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        bring_to_memory(store.path)
        for name, dtype in ours:
            found.setdefault(f"{name}, {dtype}", []).append(contend(name, store.path, seq_len, seconds, dtype))
        bring_to_memory(shards.path)
        for name in ("tensors", "ahead"):
            found.setdefault(f"{name}, shards", []).append(contend(name, shards.path, seq_len, seconds, "stored"))
        for name, out in peers.items():
            bring_to_memory(out)
            found.setdefault(name, []).append(peer("read", name, out, seq_len, seconds))
    for out in peers.values():
        shutil.rmtree(out)
    stored = store.manifest.dtype
    names = {
        "tensors, stored": f"tokpress.Loader(threads=0), tensors of {stored}",
        "ahead, stored": f"tokpress.Loader as it comes (threads=1), tensors of {stored}",
        "tensors, shards": f"tokpress.Loader(threads=0), the same in {len(shards.shard_token_ends)} shards",
        "ahead, shards": f"tokpress.Loader as it comes, the same in {len(shards.shard_token_ends)} shards",
        "arrays, stored": f"tokpress.Loader(threads=0), arrays of {stored}",
        "copy, stored": f"bare copy by torch on all cores, {stored}",
        "gather, stored": f"bare NumPy gather from a memory map, {stored}",
        "tensors, int64": "tokpress.Loader(threads=0), tensors of int64",
        "arrays, int64": "tokpress.Loader(threads=0), arrays of int64",
        "gather, int64": "bare NumPy gather, then astype(int64)",
        "all-fields, int64": "tokpress.Loader, all six fields, tensors",
        "litdata": f"LitData TokensLoader, {'uint16' if stored == 'uint16' else 'int32'}",
        "mosaicml": f"MosaicML StreamingDataset, {stored}",
    }
    print(f"| seq_len {seq_len:,}, batch {BATCH}, shuffled | M tokens/s | own memory | grew by |\n|---|---|---|---|")
    for key in (key for key in names if key in found):
        runs = sorted(found[key], key=lambda run: run["tokens_per_s"])
        run = runs[len(runs) // 2]
        own = f"{run['memory'] / 1e6:,.0f} MB | {run['growth'] / 1e6:,.1f} MB" if "memory" in run else "|"
        print(f"| {names[key]} | {run['tokens_per_s'] / 1e6:,.1f} | {own} |")
    pairs = [
        ("arrays, stored", "gather, stored"),
        ("arrays, int64", "gather, int64"),
        ("tensors, stored", "copy, stored"),
        ("copy, stored", "litdata"),
        *(
            (f"{mine}, {where}", theirs)
            for theirs in peers
            for where in ("stored", "shards")
            for mine in ("tensors", "ahead")
        ),
    ]
    for mine, theirs in (pair for pair in pairs if pair[0] in found):
        both = zip(found[mine], found[theirs], strict=True)
        ratio = statistics.median(my["tokens_per_s"] / their["tokens_per_s"] for my, their in both)
        print(f"\n{names[mine]} / {names[theirs]}: {ratio:.2f} (median of {rounds})", flush=True)
    print()


def huge_store() -> Path:
    """10^12 tokens that take no room: every file is a hole but the document ends."""
    out = corpus.DATA / "loader-huge"
    shutil.rmtree(out, ignore_errors=True)
    source = corpus.DATA / "one.jsonl"
    source.write_text('{"text": "a"}\n')
    tokpress.build(source, tokenizer="bytes", out=out)
    manifest = read_manifest(out)
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
    write_manifest(out, msgspec.structs.replace(manifest, splits={"train": huge}))
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
    command = [sys.executable, __file__, "--contender", "huge", str(store)]
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
            command = [sys.executable, __file__, "--contender", "cold", str(store.path), str(seq_len), name]
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
    command = [sys.executable, __file__, "--contender", "steady", str(store.path), str(seconds)]
    run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"Own memory after {seconds / 5:.0f} s: {run['early'] / 1e6:.1f} MB, after {seconds:.0f} s and ", end="")
    print(f"{run['samples']:,} sequences: {run['late'] / 1e6:.1f} MB\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        name, store, *rest = args.contender
        if name == "huge":
            print(json.dumps(run_huge(store)))
        elif name == "cold":
            print(json.dumps(run_cold(store, int(rest[0]), rest[1])))
        elif name == "steady":
            print(json.dumps(run_steady(store, float(rest[0]))))
        else:
            print(json.dumps(CONTENDERS[name](store, int(rest[0]), float(rest[1]), rest[2])))
        return
    rounds, seconds, size = (1, 1.0, 20 * 10**6) if args.quick else (args.rounds, 5.0, 400 * 10**6)
    print(f"{measure.machine()}\n", flush=True)
    stored = [(name, "stored") for name in ("gather", "copy", "arrays", "tensors", "ahead")]
    widened = [(name, "int64") for name in ("gather", "arrays", "tensors", "all-fields")]
    for tokenizer, ours in ((corpus.llama3_50k(), stored), (corpus.llama3(), [*stored, *widened])):
        store, shards = store_of(size, tokenizer), in_shards(size, tokenizer)
        print(f"{store.num_tokens:,} tokens of {tokenizer.name}, {store.manifest.dtype}\n", flush=True)
        for seq_len in (2048, 8192):
            compare(store, shards, seq_len, rounds, seconds, ours)
            cold(store, seq_len, rounds)
    steady(store, 12 * seconds)
    huge(rounds)


if __name__ == "__main__":
    main()
