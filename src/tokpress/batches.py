"""What flows between the packages: text in Arrow memory, token ids in NumPy memory.

In: nothing; these are plain records. Out: `TextBatch` goes from a source through a template to an engine, `TokenBatch` comes
from an engine, `DocumentBatch` goes to the store's writer. None holds a Python object per document: a batch of a million
documents is a handful of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.records import Reject

Ids = npt.NDArray[np.unsignedinteger[Any]]  # u16 or u32
Int64s = npt.NDArray[np.int64]


PREVIEW_BYTES = 80
_HARDLY_ANY = 20  # one word of eight in so many holds one


def preview(data: bytes) -> str:
    """The head of a record as printable text, whatever its bytes are."""
    return data[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch:
    """Consecutive records of the inputs: the good ones as text, the bad ones as rejects.

    `input` and `next_position` say where the record after this batch starts, so that reading can go on right there.
    """

    text: pa.LargeStringArray  # no nulls, valid UTF-8
    positions: Int64s  # of each document: byte offset of its record, or row number
    sources: npt.NDArray[np.int32]  # of each document: index of its input in the plan
    rejects: list[Reject] = field(default_factory=list)
    input: int  # index of the input read last
    next_position: int
    parse_seconds: float = 0.0  # taken to get text out of the bytes, for the summary
    input_bytes: int = 0  # bytes of the file consumed for this batch, as stored (compressed), for progress
    kept: pa.RecordBatch | None = (
        None  # the other fields of each document, as text: of --keep, for a template, for splits
    )
    splits: npt.NDArray[np.int32] | None = None  # of each document, as a number; None: there is one only

    def __len__(self) -> int:
        return len(self.text)

    @property
    def text_bytes(self) -> int:
        return text_bytes(self.text)

    def only(self, docs: Int64s, rejects: list[Reject]) -> TextBatch:
        """These documents of the batch, with other rejects."""
        return replace(
            self,
            text=self.text.take(pa.array(docs)),
            positions=self.positions[docs],
            sources=self.sources[docs],
            rejects=rejects,
            kept=None if self.kept is None else self.kept.take(pa.array(docs)),
            splits=None if self.splits is None else self.splits[docs],
        )

    def part(self, start: int, stop: int | None = None) -> TextBatch:
        """Documents [start, stop) without a copy, and without rejects; only the first part counts bytes of the input."""
        docs = slice(start, stop)
        return replace(
            self,
            text=self.text[docs],
            positions=self.positions[docs],
            sources=self.sources[docs],
            rejects=[],
            input_bytes=0 if start else self.input_bytes,
            kept=None if self.kept is None else self.kept[docs],
            splits=None if self.splits is None else self.splits[docs],
        )


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Documents as token ids: document i is `ids[ends[i - 1]:ends[i]]`, with `ends[-1]` read as 0 for the first."""

    ids: Ids
    ends: Int64s

    def __len__(self) -> int:
        return len(self.ends)

    def doc(self, i: int) -> Ids:
        return self.ids[self.ends[i - 1] if i else 0 : self.ends[i]]

    def part(self, start: int, stop: int) -> TokenBatch:
        """Documents [start, stop) as a batch of their own, without a copy of the ids."""
        first = int(self.ends[start - 1]) if start else 0
        ends = self.ends[start:stop] - first
        return TokenBatch(self.ids[first : first + (int(ends[-1]) if len(ends) else 0)], ends)


Mask = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBatch:
    """Documents as they are written. What is None holds for none of them."""

    tokens: TokenBatch
    positions: Int64s
    sources: npt.NDArray[np.int32]
    mask: Mask | None = None  # of each token: 1 = loss here; None: there are no masks
    kept: pa.RecordBatch | None = None
    splits: npt.NDArray[np.int32] | None = None  # as in TextBatch
    continued: Flags | None = None  # the document goes on with the record of the one before
    truncated: Flags | None = None
    audited: Flags | None = None  # the reference encoded it, too

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def records(self) -> int:
        return len(self) - count(self.continued)

    def part(self, start: int, stop: int) -> DocumentBatch:
        """Documents [start, stop), without a copy."""
        first, last = (int(self.tokens.ends[i - 1]) if i else 0 for i in (start, stop))
        return DocumentBatch(
            tokens=self.tokens.part(start, stop),
            positions=self.positions[start:stop],
            sources=self.sources[start:stop],
            mask=None if self.mask is None else self.mask[first:last],
            kept=None if self.kept is None else self.kept[start:stop],
            splits=None if self.splits is None else self.splits[start:stop],
            continued=None if self.continued is None else self.continued[start:stop],
            truncated=None if self.truncated is None else self.truncated[start:stop],
            audited=None if self.audited is None else self.audited[start:stop],
        )

    def take(self, docs: Int64s) -> DocumentBatch:
        """These documents, which must be in order."""
        if len(docs) == len(self):
            return self
        ids, ends = _take(self.tokens.ids, self.tokens.ends, docs)
        return DocumentBatch(
            tokens=TokenBatch(ids, ends),
            positions=self.positions[docs],
            sources=self.sources[docs],
            mask=None if self.mask is None else _take(self.mask, self.tokens.ends, docs)[0],
            kept=None if self.kept is None else self.kept.take(pa.array(docs)),
            splits=None if self.splits is None else self.splits[docs],
            continued=None if self.continued is None else self.continued[docs],
            truncated=None if self.truncated is None else self.truncated[docs],
            audited=None if self.audited is None else self.audited[docs],
        )


def count(flags: Flags | None) -> int:
    return 0 if flags is None else int(np.count_nonzero(flags))


def places(flags: Flags) -> Int64s:
    """Where flags are set: `np.flatnonzero`, but twice as fast where hardly any is, as eight are looked at together."""
    whole = len(flags) // 8 * 8
    words = np.flatnonzero(flags[:whole].view(np.uint64))
    if len(words) * 8 * _HARDLY_ANY > whole:
        return np.flatnonzero(flags)
    near = np.concatenate([(words[:, None] * 8 + np.arange(8)).ravel(), np.arange(whole, len(flags))])
    found: Int64s = near[flags[near]]
    return found


def _take(values: npt.NDArray[Any], ends: Int64s, docs: Int64s) -> tuple[npt.NDArray[Any], Int64s]:
    """The values of some documents, and where these end then; one gather of binary strings."""
    width = values.dtype.itemsize
    bounds = np.concatenate([[0], ends]) * width
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(values))]
    _, offsets, data = (
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers).take(pa.array(docs)).buffers()
    )
    if offsets is None or not len(docs):
        return values[:0], np.empty(0, np.int64)
    taken = np.frombuffer(offsets, np.int64)[1 : len(docs) + 1] // width
    return np.frombuffer(data, values.dtype, count=int(taken[-1])), taken


def large_strings(values: Any) -> pa.LargeStringArray:
    """Any sequence of `str` (or an Arrow array of text) as the one array type that the engines take."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if pa.types.is_large_string(values.type) else values.cast(pa.large_string())
    return pa.array(values, pa.large_string())


def string_buffers(text: pa.LargeStringArray) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Offsets (one more than documents) and the bytes they point into, without a copy."""
    _, offsets, data = text.buffers()
    if offsets is None:  # Arrow leaves the buffer of an empty array out
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def text_bytes(text: pa.LargeStringArray) -> int:
    starts, _ = string_buffers(text)
    return int(starts[-1] - starts[0])


def in_order(rejects: list[Reject]) -> list[Reject]:
    """As they were read."""
    return sorted(rejects, key=lambda reject: (reject.input, reject.position))


def concat_text(batches: list[TextBatch]) -> TextBatch:
    """Small batches (of many small files) as one, so that an engine call is worth its overhead."""
    if len(batches) == 1:
        return batches[0]
    kept = [batch.kept for batch in batches if batch.kept is not None]
    splits = [batch.splits for batch in batches if batch.splits is not None]
    return TextBatch(
        text=pa.concat_arrays([batch.text for batch in batches]),
        positions=np.concatenate([batch.positions for batch in batches]),
        sources=np.concatenate([batch.sources for batch in batches]),
        rejects=[reject for batch in batches for reject in batch.rejects],
        input=batches[-1].input,
        next_position=batches[-1].next_position,
        parse_seconds=sum(batch.parse_seconds for batch in batches),
        input_bytes=sum(batch.input_bytes for batch in batches),
        kept=pa.concat_batches(kept) if kept else None,
        splits=np.concatenate(splits) if splits else None,
    )
