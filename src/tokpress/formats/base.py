"""The contracts of a format, and the one place where a name meets its class.

In: the splits of a store and what was asked for. Out: `Part`s, each written by one thread without knowing of the others,
and the index that a reader looks for, when all parts are there. The other way: `TokenFile`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.formats import FORMATS, IMPORTABLE
from tokpress.records import KEPT, Count, Receipt
from tokpress.storage.local import LocalStorage
from tokpress.store.reader import Store


class Indices(msgspec.Struct, frozen=True, kw_only=True):
    """Of Megatron: the indices that are asked for."""

    seq_lens: list[int]
    samples: dict[str, int]  # of each split; of one that is not named: one epoch
    seed: int
    tokenizer: Any  # its `unique_identifiers`


Advance = Callable[[int], None]  # told the bytes that were just written or linked


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. All of it decides the output, and stands in its `metadata.json`."""

    to: str
    splits: list[str]
    seq_len: int | None = None
    method: str | None = None  # of packing, where there is a seq_len
    packing: dict[str, Any] = {}
    dtype: str | None = None  # of the ids; None: what the format usually has
    merge: bool = False
    copy: bool = False
    # Left out of the JSON where they are not asked for, so that an export's metadata is what it was; UNSET is false.
    file_tokens: int | msgspec.UnsetType = msgspec.UNSET
    min_files: int | msgspec.UnsetType = msgspec.UNSET
    tokenizer_name: str | msgspec.UnsetType = msgspec.UNSET
    trainer: str | msgspec.UnsetType = msgspec.UNSET  # --for
    lossy: bool | msgspec.UnsetType = msgspec.UNSET
    keep: bool | msgspec.UnsetType = msgspec.UNSET  # kept fields as columns
    indices: Indices | msgspec.UnsetType = msgspec.UNSET  # of Megatron, made beforehand


class Loss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something of a split that a reader of the export does not get, or gets otherwise."""

    split: str
    kind: Literal["tokens-cut", "loss-changed", "mask-not-read", "bounds-by-eos", "too-small"]
    tokens: Count  # that it is about; of bounds, how many
    loss_tokens: Count = 0  # tokens among them on which there is loss in the store and not here, or here and not there
    detail: str

    def __str__(self) -> str:
        counted = f"{self.tokens:,} tokens " if self.kind in ("tokens-cut", "loss-changed") else ""
        counted = f"{self.tokens:,} " if self.kind == "bounds-by-eos" else counted
        some = f" ({self.loss_tokens:,} of them in the loss)" if self.kind == "tokens-cut" and self.loss_tokens else ""
        return f"{self.split}: {counted}{self.detail}{some}"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A part, finished: its receipt."""

    files: dict[str, Count]  # path inside the export -> bytes of the whole file
    linked: Count = 0  # bytes that are shared with the store
    note: dict[str, Any] = {}  # what the format's index says of this part


Write = Callable[[LocalStorage, Advance], Written]  # a part into the directory of an export


@dataclass(frozen=True, slots=True)
class Export:
    """One export: a store, what is asked of it, and where it will stand."""

    splits: dict[str, Store]
    options: ExportOptions
    final: Path

    @property
    def store(self) -> Store:
        """Any of the splits, for what they have in common."""
        return next(iter(self.splits.values()))


@dataclass(frozen=True, slots=True)
class Part:
    """Some files, or a stretch of a file that several parts share. Written again, it gives the same bytes."""

    name: str  # no other part of the export has it
    bytes: int  # about, for the bar
    write: Write


class Format(Protocol):
    """Writes one format, and may read it. What it can hold stands here, so that an error can name those that can more."""

    opened_with: str = ""  # what to type, or to pass to its trainer, for an export at {out}
    opened_with_sequences: str = ""  # of rows of one length; empty: the same
    in_directories: bool = True  # a directory a split; else the split's name begins the files' names
    holds_u32: bool = True
    holds_masks: bool = False
    seq_len: Literal["no", "may", "must"] = "no"  # whether rows are sequences of one length; "may": else documents
    methods: tuple[str, ...] = ("concat", "bestfit", "pad")  # of packing; the first, unless another is asked for
    dtypes: tuple[str, ...] = ()  # to choose from
    can_merge: bool = False
    sized_files: bool = False  # --file-tokens, --min-files
    names_tokenizer: bool = False  # --tokenizer-name

    def parts(self, export: Export) -> list[Part]: ...

    def directories(self, export: Export) -> list[str]:
        """Those that its files stand in."""
        return list(export.splits) if self.in_directories else []

    def index(self, export: Export, written: dict[str, Written]) -> dict[str, bytes]:  # noqa: ARG002
        """The files that a reader looks for first, written last. `written` has every part's receipt, in order."""
        return {}

    def token_files(self, paths: Sequence[Path], given: Given) -> list[TokenFile]:  # noqa: ARG002
        """The token files that a user means by these paths, in order, with their documents."""
        raise UsageError(f"files of this format cannot be imported. Choose one of {', '.join(IMPORTABLE)}.")


@dataclass(frozen=True, slots=True)
class Given:
    """What token files do not say of themselves."""

    dtype: np.dtype[Any]  # for those that do not say theirs
    eos_id: int | None  # for those that do not say where documents end


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """One file of token ids that was found, with the documents in it."""

    path: Path
    dtype: np.dtype[Any]  # u16 or u32
    tokens: int
    ends: Int64s  # of its documents, in tokens
    offset: int = 0  # bytes before the first id
    last: int | None = None  # a token that belongs to the end, but does not stand in the file
    mask: Path | None = None  # u8 a token


def open_format(name: str) -> Format:
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}. Choose one of {', '.join(FORMATS)}.")
    made: Format = getattr(import_module(f"tokpress.formats.{name}"), FORMATS[name])()
    return made


def check_options(export: Export) -> None:
    """Raises UsageError for what the format cannot hold, with those that can, and for options that it does not take."""
    options, store = export.options, export.store
    form = open_format(options.to)
    if store.dtype.itemsize == 4 and not form.holds_u32:
        raise UsageError(
            f"{options.to} holds 16-bit ids, but {store.url} has a vocabulary of {store.manifest.tokenizer.vocab_size:,} "
            f"and 32-bit ids. Choose a format that holds them: --to {_those('holds_u32')}."
        )
    masked = [split for split, part in export.splits.items() if has_mask(part)]
    if masked and not form.holds_masks:
        raise UsageError(
            f"{options.to} has no place for a loss mask, and split {masked[0]!r} of {store.url} has one. Choose a format "
            f"that has: --to {_those('holds_masks')}."
        )
    if options.seq_len is None and form.seq_len == "must":
        raise UsageError(f"--to {options.to} writes sequences of one length. Say which: --seq-len 2048, for example.")
    if options.seq_len is not None and form.seq_len == "no":
        raise UsageError(
            f"--to {options.to} has no sequences: its reader cuts them, at any length. Leave --seq-len out."
        )
    if options.seq_len is None and (options.method or options.packing):
        raise UsageError("--method and its options are for sequences of one length. Say which: --seq-len 2048.")
    if options.method is not None and options.method not in form.methods:
        raise UsageError(f"--to {options.to} has no place for padding: it takes --method {form.methods[0]} alone.")
    if options.dtype is not None and options.dtype not in form.dtypes:
        choice = f"takes {', '.join(form.dtypes)}" if form.dtypes else "has the store's own; leave it out"
        raise UsageError(f"--dtype {options.dtype}: --to {options.to} {choice}.")
    if options.merge and not form.can_merge:
        raise UsageError(f"--merge is for --to megatron; leave it out for {options.to}.")
    if options.keep and (options.to not in ("parquet", "arrow") or options.seq_len is not None):
        raise UsageError("--keep is for --to parquet and arrow, a document a row. Leave it out, or --seq-len.")
    if options.keep and not any(
        KEPT in receipt.files for split in export.splits.values() for receipt in shards_of(split)
    ):
        raise UsageError(f"--keep: {store.url} keeps no fields. Build it with --keep id,url, for example.")
    if options.indices and options.to != "megatron":
        raise UsageError(f"--indices-for is for --to megatron; leave it out for {options.to}.")
    if options.tokenizer_name and not form.names_tokenizer:
        raise UsageError(f"--tokenizer-name is for --to datatrove; leave it out for {options.to}.")
    if (options.file_tokens or options.min_files) and not form.sized_files:
        raise UsageError(f"--file-tokens and --min-files are for --to llmc; leave them out for {options.to}.")


def has_mask(store: Store) -> bool:
    return any("mask" in receipt.files for receipt in shards_of(store))


def shards_of(store: Store) -> list[Receipt]:
    """The shards of a split that have documents, as `Store.shard` counts them."""
    return [receipt for receipt in store.manifest.splits[store.split_name].shards if receipt.docs]


def _those(what: str) -> str:
    return ", ".join(name for name in FORMATS if getattr(open_format(name), what))
