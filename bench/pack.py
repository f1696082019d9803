"""What packing wastes on real text, and what it costs to plan it for very many documents.

    python bench/pack.py            on the whole corpus and 100 M synthetic documents; prints Markdown
    python bench/pack.py --quick    on 100 MB and 10 M documents, to see that it works

Every row is `tokpress pack` in a process of its own, start-up included. Synthetic documents have lengths from a log-normal
distribution (median 500 tokens, mean about 1,000) and no tokens: their files are sparse, for a packing never reads a token.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import corpus
import measure
import msgspec
import numpy as np

import tokpress
from tokpress.records import SHARDS, Counts, FileEntry, Receipt, Split
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest, write_manifest

SEQ_LENS = (2048, 8192)
SHARD_DOCS = 10**6
OUT = corpus.DATA / "packing"


def pack(store: Path, seq_len: int, method: str) -> list[str]:
    command = [sys.executable, "-m", "tokpress", "pack", str(store), "--seq-len", str(seq_len)]
    return [*command, "--method", method, "--json"]


def real_text(source: Path) -> None:
    store = OUT / "real"
    tokpress.build(source, tokenizer=corpus.llama3(), out=store, overwrite=True)
    print("| sequences of | method | padding | tokens left out | documents cut | though they fit |")
    print("|---|---|---|---|---|---|")
    for seq_len in SEQ_LENS:
        for method in ("bestfit", "concat", "pad"):
            waste: dict[str, Any] = json.loads(subprocess.check_output(pack(store, seq_len, method)))
            left_out = waste["truncated_tokens"] / waste["tokens"]
            cut, though = waste["docs_cut"] / waste["docs"], waste["docs_cut_that_fit"] / waste["docs"]
            shares = f"{1 - waste['efficiency']:.3%} | {left_out:.3%} | {cut:.1%} | {though:.1%}"
            print(f"| {seq_len:,} | {method} | {shares} |", flush=True)


def synthetic(docs: int) -> Path:
    """A store that has lengths and no tokens."""
    (OUT / "empty.jsonl").write_text("")
    store = tokpress.build(OUT / "empty.jsonl", tokenizer="bytes", out=OUT / "synthetic", overwrite=True).path
    rng = np.random.default_rng(0)
    receipts = []
    for number, first in enumerate(range(0, docs, SHARD_DOCS)):
        lengths = np.maximum(rng.lognormal(np.log(500), 1.2, min(SHARD_DOCS, docs - first)), 1).astype(np.int64)
        receipts.append(_shard(store, number, lengths))
    split = Split(docs=docs, tokens=sum(receipt.tokens for receipt in receipts), shards=receipts)
    write_manifest(
        LocalStorage(store), msgspec.structs.replace(read_manifest(LocalStorage(store)), splits={"train": split})
    )
    return store


def _shard(store: Path, number: int, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> Receipt:
    docs, tokens = len(lengths), int(lengths.sum())
    sizes = {"bin": 2 * tokens, "ends": 8 * docs, "pos": 8 * docs}
    receipt = Receipt(
        split="train",
        unit=0,
        number=number,
        docs=docs,
        tokens=tokens,
        max_id=0,
        files={extension: FileEntry(size, "") for extension, size in sizes.items()},
        sources=[(0, docs)],
        counts=Counts(read=docs, written=docs),
        rejects={},
        audited=0,
        next_input=None,
        next_position=None,
    )
    (store / SHARDS).mkdir(exist_ok=True)
    for extension, size in sizes.items():
        with (store / receipt.path(extension)).open("wb") as file:
            file.truncate(size)
    np.cumsum(lengths).tofile(store / receipt.path("ends"))
    return receipt


def many_documents(docs: int) -> None:
    store = synthetic(docs)
    print("\n| documents | sequences of | plan | peak memory | bytes on disk a document | padding |")
    print("|---|---|---|---|---|---|")
    for seq_len in SEQ_LENS:
        run = measure.run(pack(store, seq_len, "bestfit"))
        plan = store / "packs" / f"train-bestfit-{seq_len}"
        disk = sum(path.stat().st_size for path in plan.iterdir()) / docs
        waste = tokpress.pack(store, seq_len=seq_len, method="bestfit")  # as it stands in the plan
        took = f"{run.seconds:,.1f} s | {run.peak_bytes / 1e6:,.0f} MB | {disk:.1f}"
        print(f"| {docs:,} | {seq_len:,} | {took} | {waste.padding_share:.4%} |", flush=True)
        shutil.rmtree(plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    source = corpus.jsonl_of(100 * 10**6) if args.quick else corpus.all_jsonl()
    print(f"{measure.machine()}; {source.stat().st_size / 1e6:,.0f} MB of JSONL, Llama 3 tokenizer\n", flush=True)
    try:
        real_text(source)
        many_documents(10**7 if args.quick else 10**8)
    finally:
        shutil.rmtree(OUT)


if __name__ == "__main__":
    main()
