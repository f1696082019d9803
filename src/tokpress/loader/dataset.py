"""PretokenizedDataset: sequence number -> what a model takes.

In: a store, a length, a packing method. Out: `data[i]`, a dictionary of arrays (tensors where torch is installed), and
`data.batch(indices)`, the same for many sequences at once. It holds no tokens, only maps, so it can be pickled
into the workers of a torch `DataLoader`, and any number of lengths and methods can be open at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from tokpress.arguments import whole_number
from tokpress.batches import Int64s
from tokpress.drawing import facts, notebook
from tokpress.errors import StoreError, UsageError
from tokpress.loader.batches.fields import FIELDS, Layout
from tokpress.loader.batches.make import Batch, SourceRanges, cut_batches, cut_rows, make_batches
from tokpress.loader.memory.remote import open_pages
from tokpress.loader.memory.stream import TokenStream, Verify
from tokpress.packing import PackingOptions, open_packing
from tokpress.store.reader import Store, open_store

Output = Literal["auto", "numpy", "torch"]

DEFAULT_FIELDS = ("input_ids", "labels")


class PretokenizedDataset:
    """Fixed-length sequences of one split of a store.

    `labels` equal `input_ids`, as Hugging Face's models take them, who shift by themselves; with `shift_labels` they are
    the next tokens. `fields` chooses among input_ids, labels, position_ids (from 0 at each document), cu_seqlens (bounds of
    the documents in the flattened batch, padded to `max_docs` a row), doc_ids (-1: padding), loss_mask (labels count).
    `cache_dir` and `cache_bytes`: where ids of a store in a bucket are kept on this machine, and how many (docs/remote.md).

    `method`: concat, bestfit (which needs a plan: `tokpress.pack`) or pad, with their `packing_options`.
    `mask_across_docs`: no label at a document's first token. `pad_id`: what fills up. `ignore_index`: the label of
    what does not count. `dtype`: of ids and labels. `output`: torch, numpy, or auto. `verify`: what of a shard is
    checked when it is opened: size or checksum.

        data = tokpress.PretokenizedDataset("tokens", seq_len=2048)
        len(data), data[0]["input_ids"], data[-1], data[0:2]
        data.batch([3, 1, 2])["labels"]
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        seq_len: int,
        method: str = "concat",
        split: str = "train",
        fields: Sequence[str] = DEFAULT_FIELDS,
        shift_labels: bool = False,
        mask_across_docs: bool = False,
        pad_id: int | None = None,
        ignore_index: int = -100,
        max_docs: int | None = None,
        dtype: npt.DTypeLike = np.int64,
        output: Output = "auto",
        verify: Verify = "size",
        cache_dir: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        **packing_options: Unpack[PackingOptions],
    ) -> None:
        check_fields(fields, output)
        if verify not in ("size", "first-touch"):
            raise UsageError(f'verify={verify!r} is not known. Give "size" or "first-touch".')
        self.store = _split_of(store, split)
        self.method = method
        if shift_labels and method == "concat":  # rows share a token, so that the last input has its label, too
            packing_options = {"overlap": 1, **packing_options}
            self.packing = open_packing(self.store, seq_len=seq_len + 1, method=method, **packing_options)
        else:
            self.packing = open_packing(self.store, seq_len=seq_len, method=method, **packing_options)
        self.packing_options = packing_options
        self.layout = Layout(
            seq_len=seq_len,
            fields=tuple(fields),
            shift_labels=shift_labels,
            mask_across_docs=mask_across_docs,
            pad_id=pad_id if pad_id is not None else default_pad_id(self.store),
            ignore_index=ignore_index,
            max_docs=min(max_docs or seq_len, seq_len),
            dtype=checked_dtype(dtype, self.store.manifest.tokenizer.vocab_size, needs_sign="labels" in fields),
        )
        self.as_tensors = wants_tensors(output)
        self.stream = TokenStream(self.store, verify, open_pages(self.store, verify, cache_dir, cache_bytes))

    def __repr__(self) -> str:
        where = f"{self.store.url!r}, split={self.store.split_name!r}"
        return f"PretokenizedDataset({where}, seq_len={self.seq_len}, method={self.method!r}, len={len(self):,})"

    def _repr_html_(self) -> str:
        rows = [("store", self.store.url), ("split", self.store.split_name), ("sequences", f"{len(self):,}")]
        rows += [
            ("length", f"{self.seq_len:,}"),
            ("packing", self.packing_name),
            ("fields", ", ".join(self.layout.fields)),
        ]
        return notebook("PretokenizedDataset", facts(rows))

    @property
    def seq_len(self) -> int:
        return self.layout.seq_len

    @property
    def packing_name(self) -> str:
        """The packing with all that decides which tokens sequence i has, beside its length."""
        options = [f"{name}={value}" for name, value in sorted(self.packing_options.items())]
        return " ".join([self.method, *options])

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, i: int | slice) -> Batch:
        """One sequence; of a slice, the batch of its sequences."""
        if isinstance(i, slice):
            return self.batch(range(len(self))[i])
        i = whole_number("sequence", i)
        if not -len(self) <= i < len(self):
            raise IndexError(f"sequence {i} is outside this dataset's {len(self):,} sequences")
        return self.__getitems__([i % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """Several sequences at once; what torch's `DataLoader` asks for, if a dataset has it."""
        sequences = self._numbers(indices)
        arrays = make_batches(self.layout, [self.ranges(sequences)], len(sequences), batches=len(sequences))
        return list(cut_rows(arrays, len(sequences), self.as_tensors))

    def batch(self, indices: Sequence[int] | Int64s) -> Batch:
        """The fields of these sequences, a row each; `cu_seqlens` for all rows laid end to end."""
        sequences = self._numbers(indices)
        arrays = make_batches(self.layout, [self.ranges(sequences)], len(sequences))
        return next(cut_batches(arrays, 1, self.as_tensors))

    def _numbers(self, indices: Sequence[int] | Int64s) -> Int64s:
        """Of sequences as a caller gives them: whole numbers, negative ones from the end."""
        given = np.asarray(indices).reshape(-1)
        if len(given) and given.dtype.kind not in "iu":
            raise TypeError(f"{str(indices)[:80]} are no numbers of sequences. Give whole numbers.")
        sequences: Int64s = given.astype(np.int64)
        outside = sequences[(sequences < -len(self)) | (sequences >= len(self))]
        if len(outside):
            raise IndexError(f"sequence {outside[0]} is outside this dataset's {len(self):,} sequences")
        return np.where(sequences < 0, sequences + len(self), sequences)

    def ranges(self, sequences: Int64s, rows: Int64s | None = None) -> SourceRanges:
        """Which tokens sequence `sequences[k]` brings to row `rows[k]`, which rise; or to row k."""
        ranges = self.stream.ranges(self.packing.pieces(sequences))
        return SourceRanges(self.stream, ranges if rows is None else ranges.moved_to(rows), self.packing.seq_len)


def default_pad_id(store: Store) -> int:
    """EOS, which is never in the loss where it is padding; 0 if the store has none."""
    return store.manifest.eos_id or 0


def _split_of(store: Store | str | os.PathLike[str], split: str) -> Store:
    if not isinstance(store, Store):
        return open_store(store, split)
    return store if store.split_name == split else store.split(split)


def wants_tensors(output: Output) -> bool:
    return output == "torch" or (output == "auto" and find_spec("torch") is not None)


def check_fields(fields: Sequence[str], output: str) -> None:
    unknown = [name for name in fields if name not in FIELDS]
    if unknown or not fields or len(set(fields)) < len(fields):
        raise UsageError(f"fields={list(fields)}: give some of {', '.join(FIELDS)}, each once.")
    if output not in ("auto", "numpy", "torch"):
        raise UsageError(f'output={output!r} is not known. Give "auto", "numpy" or "torch".')
    if output == "torch" and find_spec("torch") is None:
        raise UsageError("output='torch', but torch is not installed. Install it: pip install 'tokpress[torch]'")


def checked_dtype(dtype: npt.DTypeLike, vocab_size: int, *, needs_sign: bool) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.kind not in "iu" or np.iinfo(kind).max < vocab_size - 1:
        raise UsageError(f"dtype={kind} cannot hold the {vocab_size:,} ids of the tokenizer. Give int64 or int32.")
    if needs_sign and kind.kind == "u":
        raise UsageError(
            f"dtype={kind} has no place for an ignored label (-100). Give int64 or int32, or leave labels out."
        )
    return kind


def no_sequences(data: PretokenizedDataset) -> StoreError:
    """For whoever needs at least one."""
    return StoreError(
        f"{data.store.url} has no sequence of {data.seq_len:,} tokens in split {data.store.split_name!r}, only "
        f"{data.store.num_tokens:,} tokens in all. Choose a smaller seq_len. See: tokpress inspect {data.store.url}"
    )
