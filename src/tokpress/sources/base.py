"""The contract of a reader, and the one place where a format meets its reader.

In: an `Input` and a range of positions. Out: `TextBatch`es in order. A position is whatever finds a record again: a byte
offset in the decompressed stream for lines and JSON, a row number for Parquet and Arrow. A record belongs to the range in
which it *starts*, so ranges that touch share no record and lose none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Protocol

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s, TextBatch, preview
from tokpress.config import ReadConfig
from tokpress.records import INVALID_UTF8, Input, Reject

Growing = Callable[[int], None]  # told how large a record has grown that is not read to its end yet; may wait, or raise


class Reader(Protocol):
    """Reads one input, as often as it is asked to. Made by `open_reader`."""

    source: Input
    most_bad: int | None  # of a block's bad records, for whoever does not need them all: a sample

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[TextBatch]:
        """Batches of the records that start in [start, stop), about `batch_bytes` of text each."""
        ...

    def probe(self, fraction: float) -> int:
        """A position about that far into the input from which `read` can start cheaply; 0 if there is none."""
        ...

    def cuts(self, unit_bytes: int) -> list[int]:
        """Where to cut the input into units of about that size: the position at which each of them starts, 0 first."""
        ...


_READERS = {  # imported when first used: pyarrow.parquet alone takes a tenth of a second
    "jsonl": ("tokpress.sources.jsonl", "JsonlReader"),
    "csv": ("tokpress.sources.csv", "CsvReader"),
    "tsv": ("tokpress.sources.csv", "CsvReader"),
    "text": ("tokpress.sources.text", "TextReader"),
    "lines": ("tokpress.sources.text", "TextReader"),
    "parquet": ("tokpress.sources.parquet", "ParquetReader"),
    "arrow": ("tokpress.sources.arrow", "ArrowReader"),
}
FORMATS = tuple(_READERS)


def open_reader(
    source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
) -> Reader:
    module, name = _READERS[source.format]
    reader: Reader = getattr(import_module(module), name)(source, index, config, batch_bytes, growing)
    return reader


class BatchMaker:
    """What every reader needs to turn arrays and bad records of one input into batches."""

    def __init__(self, source: Input, index: int) -> None:
        self.source = source
        self.index = index

    def batch(
        self,
        text: pa.LargeStringArray,
        positions: Int64s,
        rejects: list[Reject],
        *,
        next_position: int,
        input_bytes: int,
        parse_seconds: float = 0.0,
        kept: pa.RecordBatch | None = None,
    ) -> TextBatch:
        return TextBatch(
            text=text,
            positions=positions,
            sources=np.full(len(text), self.index, np.int32),
            rejects=rejects,
            input=self.index,
            next_position=next_position,
            parse_seconds=parse_seconds,
            input_bytes=input_bytes,
            kept=kept,
        )

    def reject(
        self, position: int, reason: str, detail: str, data: bytes = b"", *, line: int | None = None, records: int = 1
    ) -> Reject:
        return Reject(
            source=self.source.path,
            input=self.index,
            position=position,
            line=line,
            reason=reason,
            detail=detail,
            preview=preview(data),
            records=records,
        )

    def invalid_utf8(self, position: int, data: bytes, *, line: int | None = None) -> Reject:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of the text is 0x{data[error.start]:02x}: {error.reason}"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            where += "; the file looks like UTF-16, convert it with: iconv -f UTF-16 -t UTF-8"
        return self.reject(position, INVALID_UTF8, where, data, line=line)


def is_valid_utf8(text: pa.LargeStringArray) -> bool:
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def empty_text() -> pa.LargeStringArray:
    return pa.array([], pa.large_string())
