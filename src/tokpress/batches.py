"""What flows between the rooms: text in Arrow memory, token ids in NumPy memory.

In: nothing; these are plain records. Out: `TextBatch` goes from a source to an engine, `TokenBatch` from an engine to
the store's writer. Neither holds a Python object per document: a batch of a million documents is a handful of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ids = npt.NDArray[np.unsignedinteger[Any]]  # u16 or u32
Int64s = npt.NDArray[np.int64]


class Reject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that was read but not written, and why. One line of `rejects/*.jsonl`."""

    source: str  # path of the input
    input: int  # its index in the plan
    position: int  # byte offset of the record (in the decompressed stream), or row number
    line: int | None = None  # counted from 1, where the input has lines
    reason: str  # one of the codes below
    detail: str
    preview: str = ""  # the record's first bytes, made printable
    records: int = 1  # more than one where a damaged block hides a known number of records


BAD_JSON = "bad-json"  # not one JSON object on the line
MISSING_FIELD = "missing-field"  # no text field, or it is null
WRONG_TYPE = "wrong-type"  # the text field holds something other than text
INVALID_UTF8 = "invalid-utf8"
EMPTY = "empty"  # no text in it, with --drop-empty
TOO_LARGE = "too-large"  # over --max-doc-bytes; never loaded
DAMAGED_INPUT = "damaged-input"  # the file ends early or is corrupt from here on

PREVIEW_BYTES = 80


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
    kept: pa.RecordBatch | None = None  # with --keep: the other fields of each document, as text

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


def concat_text(batches: list[TextBatch]) -> TextBatch:
    """Small batches (of many small files) as one, so that an engine call is worth its overhead."""
    if len(batches) == 1:
        return batches[0]
    kept = [batch.kept for batch in batches if batch.kept is not None]
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
    )
