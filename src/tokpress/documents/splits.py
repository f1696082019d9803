"""Which split a record belongs to.

In: batches of records. Out: the same, with the number of a split for each record; `names` says which it is. It is decided by
a keyed hash of where the record stands (the file's name below the argument that found it, and the position in it) or of its
`--split-key`; by a field that names the split; or by the input. So a record falls on the same side whatever the workers,
whatever is added later, and wherever the files lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import xxhash
from msgspec import UNSET

from tokpress.batches import TextBatch, in_order
from tokpress.config import BuildConfig, SplitConfig
from tokpress.documents.base import rejected
from tokpress.documents.templates import reading
from tokpress.errors import InputError, UsageError
from tokpress.hashing import Words, mix
from tokpress.records import BAD_SPLIT, MISSING_FIELD, STDIN, TRAIN, Input
from tokpress.sources.base import open_reader

VAL = "val"
_MAX_SPLITS = 16  # of --split-field: a store is no place to group records by
_NAME = re.compile(r"[A-Za-z0-9_.]*[A-Za-z0-9_][A-Za-z0-9_.]*")
_BATCH_BYTES = 1024**2
_ALL = 2**64 - 1  # a threshold that, as good as ever, all hashes are below


class Splitter:
    """Made once in each worker."""

    def __init__(self, config: SplitConfig, inputs: Sequence[Input], threshold: int | None) -> None:
        """`threshold`: hashes below it are `val`; from `threshold_for`."""
        self._config = config
        self._inputs = inputs
        self._threshold = threshold
        self._hasher = Hasher(config, inputs)
        self._is_val = np.array([source.split == VAL for source in inputs], np.bool_)
        self.names = [TRAIN, VAL] if config.split_field is None and config.is_used else [TRAIN]

    def mark(self, batch: TextBatch) -> TextBatch:
        """The batch with the split of each record; those whose split cannot be told are rejects."""
        if not self._config.is_used:
            return batch
        if self._config.split_field is not None:
            return self._by_field(batch, self._config.split_field)
        if self._threshold is None:
            return replace(batch, splits=self._is_val[batch.sources].astype(np.int32))
        hashes, missing = self._hasher.hashes(batch)
        val = hashes < np.uint64(self._threshold)
        return self._without(replace(batch, splits=val.astype(np.int32)), missing)

    def _by_field(self, batch: TextBatch, field: str) -> TextBatch:
        if batch.kept is None:
            return batch
        values = batch.kept.column(field).dictionary_encode()
        bad: dict[int, tuple[str, str]] = {}
        numbers = []
        for name in values.dictionary.to_pylist():
            if name not in self.names and _NAME.fullmatch(name):
                self.names.append(name)
            numbers.append(self.names.index(name) if name in self.names else -1)
        check_names(self.names)
        codes = values.indices.fill_null(len(numbers)).to_numpy()
        splits = np.array([*numbers, -2], np.int32)[codes]
        for i in np.flatnonzero(splits < 0).tolist():
            if splits[i] == -2:
                bad[i] = MISSING_FIELD, f"nothing at field {field!r}, which is to name the split"
            else:
                bad[i] = BAD_SPLIT, f"{values[i].as_py()[:80]!r} in field {field!r} is no name for a split"
        return self._without(replace(batch, splits=splits), bad)

    def _without(self, batch: TextBatch, bad: dict[int, tuple[str, str]]) -> TextBatch:
        if not bad:
            return batch
        rejects = in_order([*batch.rejects, *rejected(batch, bad, self._inputs)])
        return batch.only(np.delete(np.arange(len(batch)), list(bad)), rejects)


def check_names(names: Sequence[str]) -> None:
    """Raises InputError for too many splits: by a worker that meets them, or at the end, if each met a few."""
    if len(names) > _MAX_SPLITS:
        raise InputError(
            f"--split-field has more than {_MAX_SPLITS} values: {', '.join(names[1:6])} and so on. "
            "Name a field that says train or val."
        )


class Hasher:
    """A record as a number that nothing but its place, or its key, decides."""

    def __init__(self, config: SplitConfig, inputs: Sequence[Input]) -> None:
        self._key = config.split_key
        self._seed = config.split_seed
        names = (source.path if source.name is UNSET else source.name for source in inputs)
        self._names = np.array([xxhash.xxh3_64_intdigest(name.encode(), self._seed) for name in names], np.uint64)

    def hashes(self, batch: TextBatch) -> tuple[Words, dict[int, tuple[str, str]]]:
        """Of each record; and why there is none, for those that lack the key."""
        if self._key is None:
            return mix(self._names[batch.sources] + batch.positions.astype(np.uint64)), {}
        names = [] if batch.kept is None else batch.kept.schema.names
        keys = batch.kept.column(self._key) if batch.kept is not None and self._key in names else batch.text
        missing = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False)).tolist() if keys.null_count else []
        values: Iterable[str] = keys.fill_null("").to_pylist()  # a key is hashed whole, so one at a time
        found = np.fromiter(
            (xxhash.xxh3_64_intdigest(key.encode(), self._seed) for key in values), np.uint64, len(batch)
        )
        return found, dict.fromkeys(missing, (MISSING_FIELD, f"nothing at field {self._key!r}, the --split-key"))


def by_name(config: SplitConfig) -> bool:
    """Whether it is decided by where a record stands."""
    return config.by_hash and config.split_key is None


def threshold_for(config: BuildConfig, inputs: Sequence[Input]) -> int | None:
    """The hash below which a record is `val`. For `--val-docs` all inputs are read once, but not encoded, to find it."""
    split = config.split
    if split.val_fraction is not None:
        return min(round(split.val_fraction * 2**64), _ALL)
    if split.val_docs is None:
        return None
    read, hasher = reading(config), Hasher(split, inputs)
    left = config.read.limit
    smallest = np.empty(0, np.uint64)
    for index, source in enumerate(inputs):
        for batch in open_reader(source, index, read, _BATCH_BYTES).read() if left != 0 else []:
            hashes = hasher.hashes(batch)[0][:left]
            left = None if left is None else left - len(hashes)
            smallest = np.concatenate([smallest, hashes])
            if len(smallest) > 2 * split.val_docs + _BATCH_BYTES:
                smallest = np.partition(smallest, split.val_docs)[: split.val_docs + 1]
            if left == 0:
                break
    if len(smallest) <= split.val_docs:
        return _ALL
    return int(np.partition(smallest, split.val_docs)[split.val_docs])


def check_split(config: SplitConfig, inputs: Sequence[str]) -> None:
    """Raises UsageError for options that do not go together."""
    ways = {
        "--val-fraction": config.val_fraction is not None,
        "--val-docs": config.val_docs is not None,
        "--split-field": config.split_field is not None,
        "--val-inputs": bool(config.val_inputs),
    }
    given = [option for option, used in ways.items() if used]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are two ways to split records. Give one of them.")
    if config.split_key is not None and not config.by_hash:
        raise UsageError(
            "--split-key says what is hashed. Say how much goes to val: --val-fraction 0.01, or --val-docs N"
        )
    if config.val_docs is not None and STDIN in inputs:
        raise UsageError("--val-docs reads the inputs twice, and standard input is gone then. Use --val-fraction.")
