"""A byte stream as blocks of whole lines.

In: chunks of a stream, from a start that need not be the start of a line. Out: `Block`s of about the chunk size, each
ending at a line's end, with the lines' bounds as arrays. A line over the limit is skipped without being held, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokpress.batches import places
from tokpress.sources.base import Growing
from tokpress.sources.blocks import BOM, Block, Damage, Oversized, Unfinished
from tokpress.sources.compression import ByteStream, DamagedStream

_NEWLINE = 0x0A
_RETURN = 0x0D


def read_lines(
    stream: ByteStream,
    start: int,
    stop: int | None,
    chunk_bytes: int,
    max_line_bytes: int,
    growing: Growing | None = None,
) -> Iterator[Block | Oversized | Damage]:
    """The lines that start in [start, stop). A line starts at byte 0 or after a newline."""
    if _is_past(stop, start):
        return
    limit = len(BOM) + max_line_bytes + len(b"\r\n")  # what is longer is too long, whatever of this it has
    line = Unfinished(limit, growing)
    offset = max(start - 1, 0)  # of that line; at first one byte early, to see whether a line starts exactly at `start`
    seek_line = start > 0
    try:
        for chunk in stream.chunks(offset, chunk_bytes):
            first = chunk.find(b"\n") + 1  # the line that began before this chunk ends here, if it does
            if seek_line:
                offset += first or len(chunk)
                if _is_past(stop, offset):
                    return
                if not first:
                    continue
                chunk, seek_line = chunk[first:], False
                first = chunk.find(b"\n") + 1
            if first and line.size + first > limit:
                line.add(chunk[:first])
                yield Oversized(offset, line.size, line.head)
                offset += line.size
                line.clear()
                chunk = chunk[first:]
                if _is_past(stop, offset):
                    return
            cut = chunk.rfind(b"\n") + 1
            if cut:
                data = line.finish(memoryview(chunk)[:cut]) if line.size or cut < len(chunk) else chunk
                yield _block(_before(data, stop, offset), offset)
                offset += len(data)
                if _is_past(stop, offset):
                    return
            if cut < len(chunk):
                line.add(chunk[cut:])
    except DamagedStream as error:
        if not seek_line:  # else the damaged line began before `start`
            yield Damage(offset, line.size, line.head, str(error))
        return
    if line.is_oversized:
        yield Oversized(offset, line.size, line.head)
    elif line.size and not (offset == 0 and line.head == BOM):
        yield _block(line.finish(), offset)


def _is_past(stop: int | None, offset: int) -> bool:
    return stop is not None and offset >= stop


def _before(data: bytes, stop: int | None, offset: int) -> bytes:
    """Those of the lines in `data` that start before `stop`."""
    if stop is None or offset + len(data) <= stop:
        return data
    return data[: data.find(b"\n", stop - 1 - offset) + 1]


def _block(data: bytes, offset: int) -> Block:
    """Finds the lines of `data`; a missing newline at the very end is fine, and "\\r\\n" ends a line as well. A byte order
    mark at the start of a file says how it is encoded and is no part of the first line."""
    codes = np.frombuffer(data, np.uint8)
    newlines = places(codes == _NEWLINE)
    starts = np.concatenate([[0], newlines + 1])
    ends = np.append(newlines, len(data))
    if starts[-1] == len(data):  # nothing follows the last newline
        starts, ends = starts[:-1], ends[:-1]
    if offset == 0 and data.startswith(BOM):
        starts[0] = len(BOM)
    returns = (newlines > starts[: len(newlines)]) & (codes[newlines - 1] == _RETURN)
    ends[: len(newlines)] -= returns
    return Block(data, offset, starts, ends)
