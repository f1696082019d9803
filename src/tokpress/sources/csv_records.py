"""A byte stream of CSV as blocks of whole records.

In: chunks of a stream, from the start of a record on. Out: `Block`s, as of lines. A line end inside quotes ends no record,
and a quote opens quotes only where a field starts, so what a line end means depends on all that stands before it in its
record: a file is never entered in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tokpress.batches import Int64s, places
from tokpress.sources.base import Growing
from tokpress.sources.blocks import BOM, Block, Damage, Oversized, Unfinished
from tokpress.sources.compression import ByteStream, DamagedStream

_NEWLINE, _RETURN, _QUOTE = 0x0A, 0x0D, 0x22
_FIELD_START, _IN_FIELD, _IN_QUOTES, _QUOTE_IN_QUOTES = range(4)  # the last one: it closes them, unless another follows


class RecordEnds:
    """Finds where records end, chunk by chunk."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter[0]
        self._special = re.compile(b"[\n" + re.escape(delimiter) + b"]")
        self._state = _FIELD_START

    @property
    def in_quotes(self) -> bool:
        return self._state == _IN_QUOTES

    def find(self, chunk: bytes) -> Int64s:
        """The places in the chunk behind each line end that ends a record."""
        codes = np.frombuffer(chunk, np.uint8)
        newlines = places(codes == _NEWLINE)
        quotes = places(codes == _QUOTE)
        inside = self._state == _IN_QUOTES
        # Where quotes are well placed, every second one opens; a doubled one closes and opens at once.
        opening = quotes[int(inside) :: 2]
        before = codes[opening - 1]
        fits = (before == self._delimiter) | (before == _NEWLINE) | (before == _QUOTE)
        if len(opening) and opening[0] == 0:
            fits[0] = self._state in (_FIELD_START, _QUOTE_IN_QUOTES)
        if not fits.all():
            return self._one_by_one(chunk)
        outside = (np.searchsorted(quotes, newlines) + inside) % 2 == 0
        self._state = self._state_after(codes, (len(quotes) + inside) % 2 == 1)
        ends: Int64s = newlines[outside] + 1
        return ends

    def _state_after(self, codes: np.ndarray[tuple[int], np.dtype[np.uint8]], inside: bool) -> int:
        last = int(codes[-1])
        if inside:
            return _IN_QUOTES
        if last == _QUOTE:
            return _QUOTE_IN_QUOTES
        return _FIELD_START if last in (self._delimiter, _NEWLINE) else _IN_FIELD

    def _one_by_one(self, chunk: bytes) -> Int64s:
        """The same field by field, for chunks with a quote inside a field that does not begin with one."""
        ends = []
        at, state = 0, self._state
        while at < len(chunk):
            if state == _IN_QUOTES:
                quote = chunk.find(b'"', at)
                at = quote + 1 or len(chunk)
                state = _QUOTE_IN_QUOTES if quote >= 0 else state
            elif state == _QUOTE_IN_QUOTES:
                again = chunk[at] == _QUOTE
                at += again
                state = _IN_QUOTES if again else _IN_FIELD
            elif state == _FIELD_START and chunk[at] == _QUOTE:
                at, state = at + 1, _IN_QUOTES
            else:
                found = self._special.search(chunk, at)
                at = found.end() if found else len(chunk)
                state = _FIELD_START if found else _IN_FIELD
                if found and found[0] == b"\n":
                    ends.append(at)
        self._state = state
        return np.array(ends, np.int64)


def read_records(
    stream: ByteStream, delimiter: bytes, start: int, chunk_bytes: int, max_bytes: int, growing: Growing | None = None
) -> Iterator[Block | Oversized | Damage]:
    """The records from `start` on, which must be where one starts."""
    limit = len(BOM) + max_bytes + len(b"\r\n")
    record = Unfinished(limit, growing)
    record_lines = 0
    scan = RecordEnds(delimiter)
    offset = start
    try:
        for chunk in stream.chunks(start, chunk_bytes):
            if offset == 0 and not record.size and chunk.startswith(BOM):
                chunk, offset = chunk[len(BOM) :], len(BOM)
            if not chunk:
                continue
            ends = scan.find(chunk)
            if len(ends) and record.size + int(ends[0]) > limit:
                first, ends = int(ends[0]), ends[1:] - ends[0]
                record.add(chunk[:first])
                lines = record_lines + chunk.count(b"\n", 0, first)
                yield Oversized(offset, record.size, record.head, lines)
                offset += record.size
                record.clear()
                chunk, record_lines = chunk[first:], 0
            if len(ends):
                before, cut = record.size, int(ends[-1])
                data = record.finish(memoryview(chunk)[:cut])
                yield _block(data, offset, ends + before)
                offset += len(data)
                chunk, record_lines = chunk[cut:], 0
            if chunk:
                record.add(chunk)
                record_lines += chunk.count(b"\n")
    except DamagedStream as error:
        yield Damage(offset, record.size, record.head, str(error))
        return
    if record.is_oversized:
        yield Oversized(offset, record.size, record.head, record_lines)
    elif scan.in_quotes:
        yield Damage(
            offset, record.size, record.head, "a quote is opened here and never closed: all that follows is lost"
        )
    elif record.size:
        data = record.finish()
        yield _block(data, offset, np.array([len(data)]))


def _block(data: bytes, offset: int, after: Int64s) -> Block:
    """Records that end before `after`, without their line ends."""
    codes = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], after[:-1]])
    ends = after - (codes[after - 1] == _NEWLINE)
    ends -= (ends > starts) & (codes[ends - 1] == _RETURN)
    return Block(data, offset, starts, ends)
