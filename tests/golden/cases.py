"""The golden builds: what is built from the recorded inputs, and what is then made of each store.

In: a case of the table. Out: its digests. Every path is relative to a directory that looks the same everywhere: paths and
times of the inputs stand in `plan.json`, and which split a record belongs to depends on its input's path. Only the public
surface is used, so that this outlives the internals.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokpress

from .digests import (
    Digests,
    batches_digest,
    documents_digest,
    export_digests,
    pack_digests,
)

HERE = Path(__file__).parent
STORE = Path("store")
MODIFIED_NS = 1_700_000_000 * 10**9  # of every input
REFUSED = "refused"  # a format that cannot hold what the store has, a loader without a single batch
ALL_FIELDS = ("input_ids", "labels", "position_ids", "cu_seqlens", "doc_ids", "loss_mask")
Options = dict[str, Any]

TEXTS = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.jsonl.bz2", "e.jsonl.xz", "table.parquet", "table.arrow"]
TEXTS += ["crlf.jsonl", "broken.jsonl.gz"]
BPE, CHAT, UNIGRAM, SP_BPE = (
    "tokenizers/bpe",
    "tokenizers/chat",
    "tokenizers/sp-unigram.model",
    "tokenizers/sp-bpe.model",
)
WIDE: Options = {  # 32 bits, and EOS needs more than 16 of them
    "tokenizer": "tokenizers/ranks.tiktoken",
    "pattern": "cl100k",
    "added_tokens": {"<|endoftext|>": 70_000},
}
QUESTIONS: Options = {"prompt_field": "question", "completion_field": "answer"}
SMALL: Options = {"unit_size": 9_000, "shard_size": 3_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One build."""

    inputs: Sequence[str]
    options: Options
    complete: bool = False  # digests of packs, exports and batches, too
    kept: bool = False  # its store is in the repository, and all that can be made of a store is made of that one
    kept_packs: bool = False  # with its packs
    leave_out: tuple[str, ...] = ()  # fields of the manifest


CASES: dict[str, Case] = {
    "plain": Case(inputs=["a.jsonl", "b.jsonl.gz"], options={"tokenizer": BPE, **SMALL}, kept=True, kept_packs=True),
    "every-input": Case(inputs=TEXTS, options={"tokenizer": BPE, "audit_rate": 0.2, **SMALL}, complete=True),
    "one-shard": Case(inputs=TEXTS, options={"tokenizer": "bytes"}),
    "many-units": Case(inputs=TEXTS, options={"tokenizer": "bytes", "unit_size": 2_000, "shard_size": 1_000}),
    "no-eos": Case(inputs=["a.jsonl"], options={"tokenizer": BPE, "eos": False}, complete=True),
    "bos": Case(inputs=["a.jsonl"], options={"tokenizer": BPE, "bos": True, "bos_token": "<|begin|>", "eos": False}),
    "other-eos": Case(inputs=["a.jsonl"], options={"tokenizer": BPE, "eos_token": "<|im_end|>"}),
    "parsed-literals": Case(inputs=["a.jsonl"], options={"tokenizer": BPE, "special_tokens": "parse"}),
    "reference": Case(inputs=TEXTS, options={"tokenizer": BPE, "engine": "huggingface"}),
    "unigram": Case(inputs=TEXTS, options={"tokenizer": UNIGRAM, "bos": True, **SMALL}),
    # Which engine encodes SentencePiece's BPE models is open; the ids are not.
    "sp-bpe": Case(inputs=TEXTS, options={"tokenizer": SP_BPE, "audit_rate": 0.0}, leave_out=("parity",)),
    "wide": Case(inputs=["crlf.jsonl"], options={**WIDE, "keep": ["id"]}, kept=True),
    "wide-shards": Case(inputs=TEXTS, options={**WIDE, "audit_rate": 0.2, **SMALL}),
    "truncate": Case(
        inputs=["a.jsonl"], options={"tokenizer": BPE, "max_length": 24, "bos": True, "bos_token": "<|begin|>"}
    ),
    "drop": Case(inputs=["a.jsonl"], options={"tokenizer": BPE, "max_length": 24, "overlong": "drop"}),
    "split-long": Case(
        inputs=["a.jsonl", "table.parquet"],
        options={"tokenizer": UNIGRAM, "max_length": 24, "overlong": "split", "keep": ["id"], **SMALL},
    ),
    "limit": Case(inputs=["a.jsonl", "table.arrow"], options={"tokenizer": "bytes", "limit": 100, **SMALL}),
    "drop-empty": Case(inputs=["a.jsonl", "table.parquet"], options={"tokenizer": "bytes", "drop_empty": True}),
    "too-large": Case(inputs=["a.jsonl", "notes.txt"], options={"tokenizer": "bytes", "max_doc_bytes": 200}),
    "inner-field": Case(inputs=["a.jsonl"], options={"tokenizer": "bytes", "text_field": "inner.body"}),
    "separator": Case(inputs=["notes.txt"], options={"tokenizer": BPE, "separator": "\n---\n", "unit_size": 500}),
    "lines": Case(inputs=["lines.txt.zst"], options={"tokenizer": BPE, "format": "lines.zst"}),
    "keep": Case(
        inputs=["a.jsonl", "table.parquet", "table.arrow"],
        options={"tokenizer": BPE, "keep": ["id", "meta.url", "lang"], **SMALL},
    ),
    "val-fraction": Case(inputs=TEXTS, options={"tokenizer": BPE, "val_fraction": 0.2, "split_seed": 3, **SMALL}),
    "val-docs": Case(inputs=TEXTS, options={"tokenizer": "bytes", "val_docs": 25, **SMALL}),
    "val-inputs": Case(
        inputs=["a.jsonl"], options={"tokenizer": "bytes", "val_inputs": ["inputs/val.jsonl", "inputs/b.jsonl.gz"]}
    ),
    "split-field": Case(
        inputs=["crlf.jsonl", "table.parquet"],
        options={"tokenizer": UNIGRAM, "split_field": "set", "keep": ["id", "meta.url"], "unit_size": 9_000},
        kept=True,
    ),
    "split-key": Case(
        inputs=["a.jsonl"],
        options={"tokenizer": "bytes", "val_fraction": 0.3, "split_key": "meta.url", "unit_size": 20_000},
        kept=True,
    ),
    "masks": Case(
        inputs=["qa.jsonl"],
        options={"tokenizer": BPE, **QUESTIONS, "max_length": 40, "overlong": "split", "unit_size": 5_000},
        kept=True,
        kept_packs=True,
    ),
    "masks-prefix-space": Case(
        inputs=["qa.jsonl"],
        options={"tokenizer": UNIGRAM, **QUESTIONS, "prompt_separator": " ", "keep_empty_loss": True, "bos": True},
    ),
    "masks-and-splits": Case(
        inputs=["qa.jsonl"],
        options={
            **WIDE,
            **QUESTIONS,
            "val_docs": 12,
            "split_key": "user",
            "max_length": 30,
            "overlong": "drop",
            **SMALL,
        },
        complete=True,
    ),
    "chats": Case(
        inputs=["chats.jsonl"],
        options={
            "tokenizer": CHAT,
            "messages_field": "messages",
            "keep": ["id"],
            "max_length": 200,
            "unit_size": 6_000,
        },
        kept=True,
    ),
    "chats-dated": Case(
        inputs=["chats.jsonl"],
        options={
            "tokenizer": BPE,
            "messages_field": "messages",
            "chat_template": "inputs/dated.jinja",
            "date": "2024-07-26",
            "loss": "last",
        },
    ),
    "chats-parquet": Case(
        inputs=["chats.parquet"],
        options={"tokenizer": CHAT, "messages_field": "messages", "loss": "all", "eos": True, "special_tokens": "text"},
    ),
    "template": Case(
        inputs=["puzzles.jsonl"], options={"tokenizer": UNIGRAM, "template": "inputs/puzzle.jinja", "val_fraction": 0.2}
    ),
}

PACKS: dict[str, Options] = {
    "bestfit 24": {"seq_len": 24, "method": "bestfit"},
    "bestfit 64": {"seq_len": 64, "method": "bestfit"},
    "bestfit 64 truncated": {"seq_len": 64, "method": "bestfit", "long_docs": "truncate"},
    "concat 32": {"seq_len": 32},
    "concat 33 overlapping": {"seq_len": 33, "overlap": 1, "keep_last": True},
    "pad 48": {"seq_len": 48, "method": "pad"},
}
EXPORTS: dict[str, Options] = {
    "megatron": {},
    "megatron merged": {"merge": True},
    "datatrove": {},
    "dolma": {},
    "nanogpt": {},
    "llmc": {},
    "npy": {"max_length": 48},
    "npy concat": {"seq_len": 32, "method": "concat", "dtype": "int64"},
    "npy bestfit": {"seq_len": 64, "method": "bestfit"},
    "parquet": {},
    "parquet bestfit": {"seq_len": 64, "method": "bestfit", "long_docs": "truncate"},
    "arrow": {},
    "arrow concat": {"seq_len": 32, "keep_last": True},
    "pt": {"seq_len": 32},
    "pt pad": {"seq_len": 48, "method": "pad", "padding_side": "left", "dtype": "int64"},
    "mds": {},
    "mds bestfit": {"seq_len": 24, "method": "bestfit"},
    "litdata": {},
    "litdata blocks": {"seq_len": 33},
}
# Options of the dataset, and those of the loader.
LOADERS: dict[str, tuple[Options, Options]] = {
    "concat": ({"seq_len": 32}, {"batch_size": 4}),
    "in order": (
        {"seq_len": 32, "keep_last": True, "dtype": "int32"},
        {"batch_size": 3, "shuffle": False, "drop_last": False},
    ),
    "shifted, rank 1 of 3": (
        {"seq_len": 16, "shift_labels": True, "mask_across_docs": True, "output": "torch"},
        {"batch_size": 2, "rank": 1, "world_size": 3, "seed": 1},
    ),
    "bestfit": (
        {"seq_len": 64, "method": "bestfit", "mask_across_docs": True, "pad_id": 7},
        {"batch_size": 2, "seed": 2, "max_epochs": 2, "threads": 0},
    ),
    "pad": (
        {"seq_len": 48, "method": "pad", "padding_side": "left", "truncation_side": "left", "ignore_index": -1},
        {"batch_size": 5, "seed": 3, "shuffle": "blocks", "rank": 1, "world_size": 2, "drop_last": False},
    ),
}


def lay_out(directory: Path) -> None:
    """The recorded inputs and tokenizers, where the builds look for them."""
    for name in ("inputs", "tokenizers"):
        shutil.copytree(HERE / name, directory / name)
        for path in (directory / name).rglob("*"):
            os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))


def build(case: Case, out: Path = STORE, **resources: Any) -> tokpress.Store:
    inputs = [f"inputs/{name}" for name in case.inputs]
    return tokpress.build(inputs, out=out, **({"max_rejects": "100%"} | case.options | resources))


def made_of(store: tokpress.Store) -> Digests:
    """All that can be made of a store. Packs are written into it."""
    splits = {name: store.split(name) for name in store.manifest.splits}
    return {
        "documents": {name: documents_digest(split) for name, split in splits.items()},
        "waste": packed(store),
        "packs": pack_digests(store.path),
        "batches": {name: dict(loaded(split)) for name, split in splits.items()},
        "exports": dict(exported(store, Path("exports"))),
    }


def packed(store: tokpress.Store) -> Digests:
    """What packing costs, as counts; best-fit leaves its plan in the store."""
    found: Digests = {}
    for split in store.manifest.splits:
        for name, options in PACKS.items():
            waste = tokpress.pack(store.path, split=split, **options)
            found[f"{split} {name}"] = f"{waste.sequences} {waste.padding} {waste.truncated_tokens} {waste.docs_cut}"
    return found


def exported(store: tokpress.Store, directory: Path) -> Iterator[tuple[str, Any]]:
    for name, options in EXPORTS.items():
        out = directory / name.replace(" ", "-")
        try:
            tokpress.export(store.path, to=name.partition(" ")[0], out=out, **options)
        except tokpress.TokpressError:
            yield name, REFUSED
        else:
            yield name, export_digests(out)


def loaded(split: tokpress.Store) -> Iterator[tuple[str, str]]:
    for name, (data, options) in LOADERS.items():
        given: Options = {"fields": ALL_FIELDS, "output": "numpy"} | data
        dataset = tokpress.PretokenizedDataset(split, split=split.split_name, **given)
        try:
            yield name, batches_digest(tokpress.Loader(dataset, **options))
        except tokpress.TokpressError:
            yield name, REFUSED
