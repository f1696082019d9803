"""The indices that Megatron makes of a pair of files before it trains: made here, so that training starts at once.

In: the lengths of a pair's documents, and what of a run decides its samples: sequence length, number of samples, seed.
Out: the four files that megatron-core would write into its cache, byte by byte: a description, whose MD5 is in all names;
the order of documents, epoch by epoch; where each sample starts, as a document and an offset; and the order of samples.

A sample is `seq_len` tokens and the one that follows; the next one starts with that token. What decides the description
besides, above all how the run's tokenizer calls itself, a run of Megatron says: it is taken from a description of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import InputError, UsageError
from tokpress.formats.base import Indices
from tokpress.formats.npy import array_header

FOLDER = "cache"  # of an export, for --data-cache-path
_SPLITS = {"train": "train", "val": "valid", "valid": "valid", "validation": "valid", "test": "test"}
_CLASS = "GPTDataset"
_SEED = 1234  # Megatron's own, where a run says none
_SURPLUS = 0.005  # mid_level_dataset_surplus: samples made of each pair beyond what its weight asks for
_ALONE_BELOW = 0.80  # of an epoch: a last epoch that is shorter is shuffled for itself


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair of files, as one run will read it."""

    path: str  # its prefix, as `train.txt` has it
    split: str
    num_samples: int | None
    seq_len: int
    indices: Indices

    @property
    def description(self) -> str:
        """What megatron-core writes down of a dataset, and takes the hash of."""
        said = {
            "class": _CLASS,
            "dataset_path": self.path,
            "num_samples": self.num_samples,
            "index_split": megatron_split(self.split),
            "random_seed": self.indices.seed,
            "sequence_length": self.seq_len,
            "split": None,
            "split_matrix": None,
            "tokenizer": self.indices.tokenizer,
        }
        return json.dumps(said, indent=4)

    def name(self, which: str) -> str:
        digest = hashlib.md5(self.description.encode(), usedforsecurity=False).hexdigest()
        return f"{FOLDER}/{digest}-{_CLASS}-{megatron_split(self.split)}-{which}"

    def files(self, lengths: Int64s) -> dict[str, list[Any]]:
        """Their names, and what to write into each."""
        documents, samples, shuffle = build_indices(lengths, self.seq_len, self.num_samples, self.indices.seed)
        return {
            self.name("description.txt"): [self.description.encode()],
            self.name("document_index.npy"): [array_header(documents.shape, documents.dtype), documents],
            self.name("sample_index.npy"): [array_header(samples.shape, samples.dtype), samples],
            self.name("shuffle_index.npy"): [array_header(shuffle.shape, shuffle.dtype), shuffle],
        }


def read_indices(seq_lens: Sequence[int], samples: dict[str, int], run: Path | None, splits: Sequence[str]) -> Indices:
    """What is asked for, checked. `run` is a description that a run of Megatron wrote, of whatever data."""
    for split in splits:
        megatron_split(split)
    if unknown := [split for split in samples if split not in splits]:
        raise UsageError(f"--index-samples {unknown[0]}: the export has the splits {', '.join(splits)}.")
    if short := [number for number in (*seq_lens, *samples.values()) if number < 1]:
        raise UsageError(f"--indices-for, --index-samples: {short[0]} is too few. Give numbers from 1 on.")
    if run is None:
        raise UsageError(
            "--indices-for needs --index-run FILE: Megatron finds indices by what its tokenizer says of itself. FILE is any "
            "*-description.txt of a run with the same tokenizer and seed, or JSON with random_seed and tokenizer "
            "(json.dumps of the tokenizer's unique_identifiers)."
        )
    try:
        said = json.loads(run.read_text())
        seed, tokenizer = int(said.get("random_seed", _SEED)), said["tokenizer"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"--index-run {run} is no description of a Megatron run ({error}).") from error
    if said.get("split") is not None:
        raise UsageError(
            f"--index-run {run} is of a run that cuts its splits out of one list (--split {said['split']}). Give the run "
            "each split's own (--train-data-path, --valid-data-path): then what is train stays train."
        )
    return Indices(seq_lens=sorted(set(seq_lens)), samples=samples, seed=seed, tokenizer=tokenizer)


def megatron_split(split: str) -> str:
    if split not in _SPLITS:
        raise UsageError(f"--indices-for: Megatron has train, valid and test, no split {split!r}. Choose with --split.")
    return _SPLITS[split]


def samples_of_pairs(tokens: Sequence[int], wanted: int | None) -> list[int | None]:
    """How many samples Megatron makes of each pair of a split, weighed by tokens, so that all of them have enough."""
    if wanted is None or len(tokens) == 1:
        return [wanted] * len(tokens)
    weights = (np.array(tokens, np.float64) / np.sum(np.array(tokens, np.float64))).tolist()
    return [math.ceil(math.ceil(wanted * weight) * (1 + _SURPLUS)) for weight in weights]


def build_indices(lengths: Int64s, seq_len: int, wanted: int | None, seed: int) -> tuple[Any, Any, Any]:
    """Documents, samples and their order, as megatron-core makes them of all documents of a pair."""
    tokens = int(lengths.sum())
    epochs = 1 if wanted is None else max(-(-(wanted * seq_len + 1) // tokens), 1)
    without_last = ((epochs - 1) * tokens - 1) // seq_len
    per_epoch = (tokens - 1) // seq_len
    alone = epochs > 1 and wanted is not None and wanted - without_last < int(_ALONE_BELOW * per_epoch)
    random = np.random.RandomState(seed)
    documents = _documents(len(lengths), epochs, random, alone=alone)
    total = (epochs * tokens - 1) // seq_len
    samples = _samples(lengths, documents, total, seq_len)
    return documents, samples, _shuffled(without_last if alone else total, total, random)


def _documents(count: int, epochs: int, random: np.random.RandomState, *, alone: bool) -> Any:
    parts = []
    for some in (epochs - 1, 1) if alone else (epochs,):
        order = np.tile(np.arange(count, dtype=np.int32), some)
        random.shuffle(order)
        parts.append(order)
    return np.concatenate(parts)


def _samples(lengths: Int64s, documents: Any, total: int, seq_len: int) -> Any:
    """Where each sample starts, and where the last one ends: the document that has the token `seq_len` times its number."""
    ends = np.cumsum(lengths[documents])
    places = np.arange(total + 1, dtype=np.int64) * seq_len
    found = np.searchsorted(ends, places, "right")
    found[0] = 0  # also if the first document is empty
    most = max(len(documents), int(lengths.max()))
    samples = np.empty((total + 1, 2), np.int32 if most <= np.iinfo(np.int32).max else np.int64)
    samples[:, 0] = found
    samples[:, 1] = places - (ends[found] - lengths[documents[found]])
    return samples


def _shuffled(first: int, total: int, random: np.random.RandomState) -> Any:
    """The samples before the last epoch, and those of it, each in an order of their own, if it is to be alone."""
    order = np.arange(total, dtype=np.uint32 if total < np.iinfo(np.uint32).max - 1 else np.int64)
    random.shuffle(order[:first])
    random.shuffle(order[first:])
    return order
