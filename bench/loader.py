"""How fast batches come: tokpress.Loader against a bare NumPy gather, LitData and MosaicML Streaming, on the same tokens.

    python bench/loader.py            about 20 minutes, prints Markdown
    python bench/loader.py --quick    fewer tokens and rounds, to see that it works

Shuffled batches of 16 sequences, one process, every contender a process of its own, one after the other and several times
over; ratios are medians over rounds. The bare gather is what NumPy can do at most: rows of a memory map, in random order,
nothing else. The bare copy is what memory can: the same by torch, on all cores and megabytes at a time. The loader is
compared with the gather where it gives arrays, with the copy and the peers where it gives tensors, as they do. All deliver
ids as they are stored: of 16 bits where the vocabulary allows it, else of 32. A training process is a busy process, so the
loader is measured beside one, too, and in seconds of the processor, all threads together. Stores that are not in memory are
the business of loader_disk.py, which runs afterwards.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal

import corpus
import loader_disk
import measure
import numpy as np
from loader_disk import BATCH, anonymous_bytes, tokens_of

import tokpress

WARM_UP = 600  # batches: by then bundles have their full size, and the buffers are all there
PEERS = Path(__file__).with_name("loader_peers.py")
PEERS_ENVIRONMENT = corpus.ROOT / "bench" / ".venv-loaders"
MOSAICML = "mosaicml-streaming==0.13.0"
COPIED_BYTES = 2**23  # at once, by whoever only copies; as the loader does
SHARDED = ("tensors", "ahead", "arrays")  # who reads the store in its usual shards, too
BESIDE_BUSY = ("tensors", "arrays")


def timed(next_batch: Callable[[], Any], seq_len: int, seconds: float) -> dict[str, float]:
    """Tokens a second, the processor's seconds for 10^9 of them, and by how much the process's own memory grew meanwhile."""
    for _ in range(WARM_UP):
        next_batch()
    before, batches, began, cpu_began = anonymous_bytes(), 0, perf_counter(), process_time()
    while perf_counter() - began < seconds:
        for _ in range(20):
            next_batch()
        batches += 20
    tokens = batches * BATCH * seq_len
    return {
        "tokens_per_s": tokens / (perf_counter() - began),
        "cpu_s": (process_time() - cpu_began) / tokens * 1e9,
        "memory": anonymous_bytes(),
        "growth": anonymous_bytes() - before,
    }


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


def in_shards(size: int, tokenizer: Path) -> tokpress.Store:
    """The same as it is built if nobody asks for one shard."""
    out = corpus.DATA / f"loader-{tokenizer.name}-{size // 10**6}MB-shards"
    return tokpress.build(corpus.jsonl_of(size), tokenizer=tokenizer, out=out)


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
        measure.bring_to_memory(store.path)
        for name, dtype in ours:
            found.setdefault(f"{name}, {dtype}", []).append(contend(name, store.path, seq_len, seconds, dtype))
        measure.bring_to_memory(shards.path)
        for name in SHARDED:
            found.setdefault(f"{name}, shards", []).append(contend(name, shards.path, seq_len, seconds, "stored"))
        with measure.busy_process():
            for name in BESIDE_BUSY:
                found.setdefault(f"{name}, busy", []).append(contend(name, shards.path, seq_len, seconds, "stored"))
        for name, out in peers.items():
            measure.bring_to_memory(out)
            found.setdefault(name, []).append(peer("read", name, out, seq_len, seconds))
    for out in peers.values():
        shutil.rmtree(out)
    names = row_names(store.manifest.dtype, len(shards.shard_token_ends))
    print_rates(f"seq_len {seq_len:,}, batch {BATCH}, shuffled", names, found)
    pairs = [
        ("arrays, stored", "gather, stored"),
        ("arrays, int64", "gather, int64"),
        ("tensors, stored", "copy, stored"),
        *((f"{name}, busy", f"{name}, shards") for name in BESIDE_BUSY),
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


def row_names(stored: str, shards: int) -> dict[str, str]:
    """Of all rows, in the order in which they are shown."""
    return {
        "tensors, stored": f"tokpress.Loader(threads=0), tensors of {stored}",
        "ahead, stored": f"tokpress.Loader as it comes (threads=1), tensors of {stored}",
        "tensors, shards": f"tokpress.Loader(threads=0), tensors, the same in {shards} shards",
        "ahead, shards": f"tokpress.Loader as it comes, tensors, in {shards} shards",
        "tensors, busy": f"tokpress.Loader(threads=0), tensors, in {shards} shards, beside one busy process",
        "arrays, stored": f"tokpress.Loader(threads=0), arrays of {stored}",
        "arrays, shards": f"tokpress.Loader(threads=0), arrays, in {shards} shards",
        "arrays, busy": f"tokpress.Loader(threads=0), arrays, in {shards} shards, beside one busy process",
        "copy, stored": f"bare copy by torch on all cores, {stored}",
        "gather, stored": f"bare NumPy gather from a memory map, {stored}",
        "tensors, int64": "tokpress.Loader(threads=0), tensors of int64",
        "arrays, int64": "tokpress.Loader(threads=0), arrays of int64",
        "gather, int64": "bare NumPy gather, then astype(int64)",
        "all-fields, int64": "tokpress.Loader, all six fields, tensors",
        "litdata": f"LitData TokensLoader, {'uint16' if stored == 'uint16' else 'int32'}",
        "mosaicml": f"MosaicML StreamingDataset, {stored}",
    }


def print_rates(title: str, names: dict[str, str], found: dict[str, list[dict[str, float]]]) -> None:
    """The median run of each row."""
    print(f"| {title} | M tokens/s | CPU s for 10^9 | own memory | grew by |\n|---|---|---|---|---|")
    for key in (key for key in names if key in found):
        runs = sorted(found[key], key=lambda run: run["tokens_per_s"])
        run = runs[len(runs) // 2]
        cells = [f"{run['tokens_per_s'] / 1e6:,.1f}", "", "", ""]
        if "memory" in run:
            cells[1:] = f"{run['cpu_s']:.2f}", f"{run['memory'] / 1e6:,.0f} MB", f"{run['growth'] / 1e6:,.1f} MB"
        print(f"| {names[key]} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        name, store_path, seq_len, length, dtype = args.contender
        print(json.dumps(CONTENDERS[name](store_path, int(seq_len), float(length), dtype)))
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
            loader_disk.cold(store, seq_len, rounds)
    loader_disk.steady(store, 12 * seconds)
    loader_disk.huge(rounds)


if __name__ == "__main__":
    main()
