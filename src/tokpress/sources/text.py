"""Plain text -> text batches: a document a file, a line, or whatever stands between separators.

In: a stream of UTF-8. Out: documents without their line ends or separators. A byte order mark at the start of a file says
how it is encoded and is no part of the first document. What follows the last separator is a document unless it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import PREVIEW_BYTES
from tokpress.config import ReadConfig
from tokpress.sources.base import Input, is_valid_utf8
from tokpress.sources.blocks import BOM, Block, Damage, LineCounter, Oversized, Parsed, Piece, StreamReader
from tokpress.sources.compression import ByteStream, DamagedStream
from tokpress.sources.lines import read_lines


class TextReader(StreamReader):
    def __init__(self, source: Input, index: int, config: ReadConfig, batch_bytes: int) -> None:
        super().__init__(source, index, config, batch_bytes)
        self.has_lines = source.format == "lines"
        self._separator = config.separator.encode() if config.separator else None

    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:
        if self.has_lines:
            return read_lines(stream, start, stop, self.chunk_bytes, self.max_bytes)
        if self._separator:
            return read_separated(stream, self._separator, start, self.chunk_bytes, self.max_bytes)
        return read_whole(stream, start, self.chunk_bytes, self.max_bytes)

    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        text = _gather(block)
        small = block.ends - block.starts <= self.max_bytes
        if small.all() and is_valid_utf8(text):
            return text, block.starts + block.offset, []
        rejects = []
        good = np.zeros(len(text), bool)
        first_line = lines.line_at(block.offset)
        for i in range(len(text)):  # one by one, but only in a block with something bad in it
            data = block.data[block.starts[i] : block.ends[i]]
            offset = int(block.starts[i]) + block.offset
            line = None if first_line is None else first_line + i
            if not small[i]:
                rejects.append(self.too_large(offset, len(data), data, line))
            elif not is_valid_utf8(text[i : i + 1]):
                rejects.append(self.maker.invalid_utf8(offset, data, line=line))
            else:
                good[i] = True
        return text.filter(pa.array(good)), block.starts[good] + block.offset, rejects


def _gather(block: Block) -> pa.LargeStringArray:
    """The records of a block as one array: between interleaved bounds stand record, gap, record, ...; gaps are dropped."""
    bounds = np.empty(2 * len(block.starts), np.int64)
    bounds[0::2], bounds[1::2] = block.starts, block.ends
    pieces = pa.LargeStringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(block.data))
    return pieces.take(pa.array(np.arange(0, len(pieces), 2)))


def read_whole(stream: ByteStream, start: int, chunk_bytes: int, max_bytes: int) -> Iterator[Piece]:
    """The file as one document (none if `start` says that it was read already)."""
    if start:
        return
    chunks: list[bytes] = []
    size = 0
    try:
        for chunk in stream.chunks(0, chunk_bytes):
            size += len(chunk)
            if size <= max_bytes + len(BOM):
                chunks.append(chunk)
            elif len(chunks) > 1:
                del chunks[1:]  # too large: only the head is kept, to show it
    except DamagedStream as error:
        yield Damage(0, b"".join(chunks)[:PREVIEW_BYTES], str(error))
        return
    if size > max_bytes + len(BOM):
        yield Oversized(0, size, b"".join(chunks)[:PREVIEW_BYTES])
        return
    data = b"".join(chunks).removeprefix(BOM)
    # Never of size 0, so that the position after the document differs from the one before it.
    yield Block(data or b"\n", 0, np.array([0]), np.array([len(data)]))


def read_separated(
    stream: ByteStream, separator: bytes, start: int, chunk_bytes: int, max_bytes: int
) -> Iterator[Piece]:
    """Documents between separators, found from left to right. `start` must be the start of a document."""
    held: list[bytes] = []  # the beginning of a document, with no separator inside
    held_bytes = 0
    head: bytes | None = None  # of a document that is too large to hold
    offset = start  # of the document being held
    try:
        for chunk in stream.chunks(start, max(chunk_bytes, 2 * len(separator))):
            if offset == 0 and not held and chunk.startswith(BOM):
                chunk, offset = chunk[len(BOM) :], len(BOM)
            overlap = held[-1][-(len(separator) - 1) :] if held and len(separator) > 1 else b""
            found = (overlap + chunk).find(separator)
            held.append(chunk)
            held_bytes += len(chunk)
            if found < 0:
                if held_bytes > max_bytes:
                    if head is None:
                        head = b"".join(held)[:PREVIEW_BYTES]
                    held = [b"".join(held)[-len(separator) :]]
                continue
            data = b"".join(held)
            data_offset = offset + held_bytes - len(data)
            if head is not None:  # the large document ends here
                end = data.find(separator)
                end += len(separator)
                size = data_offset + end - offset
                yield Oversized(offset, size, head)
                data, head = data[end:], None
                offset += size
            pieces = pc.split_pattern(pa.array([data], pa.large_binary()), pattern=separator).values
            sizes = pc.binary_length(pieces).to_numpy(zero_copy_only=False)
            starts = np.concatenate([[0], np.cumsum(sizes + len(separator))])
            last = len(sizes) - 1  # what follows the last separator goes on in the next chunk
            if last:
                yield Block(data[: starts[last]], offset, starts[:last], starts[:last] + sizes[:last])
            held, held_bytes = [data[starts[last] :]], int(sizes[last])
            offset += int(starts[last])
    except DamagedStream as error:
        yield Damage(offset, head if head is not None else b"".join(held), str(error))
        return
    data = b"".join(held)
    if head is not None:
        yield Oversized(offset, held_bytes, head)
    elif data:
        yield Block(data, offset, np.array([0]), np.array([len(data)]))
