"""Plain text -> text batches: a document a file, a line, or whatever stands between separators.

In: a stream of UTF-8. Out: documents without their line ends or separators. A byte order mark at the start of a file says
how it is encoded and is no part of the first document. What follows the last separator is a document unless it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.config import ReadConfig
from tokpress.records import Input
from tokpress.sources.base import Growing, is_valid_utf8
from tokpress.sources.blocks import BOM, Block, Damage, LineCounter, Oversized, Parsed, Piece, StreamReader, Unfinished
from tokpress.sources.compression import ByteStream, DamagedStream
from tokpress.sources.lines import read_lines


class TextReader(StreamReader):
    def __init__(
        self, source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
    ) -> None:
        super().__init__(source, index, config, batch_bytes, growing)
        self.has_lines = source.format == "lines"
        self._separator = config.separator.encode() if config.separator else None

    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:
        if self.has_lines:
            return read_lines(stream, start, stop, self.chunk_bytes, self.max_bytes, self.growing)
        if self._separator:
            return read_separated(stream, self._separator, start, self.chunk_bytes, self.max_bytes, self.growing)
        return read_whole(stream, start, self.chunk_bytes, self.max_bytes, self.growing)

    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        text = _gather(block)
        small = block.ends - block.starts <= self.max_bytes
        if small.all() and is_valid_utf8(text):
            return Parsed(text, block.positions, [])
        rejects = []
        good = np.zeros(len(text), bool)
        first_line = lines.line_at(block.offset)
        for i, position in enumerate(block.positions.tolist()):  # one by one, but only where something is bad
            data = block.data[block.starts[i] : block.ends[i]]
            line = None if first_line is None else first_line + i
            if not small[i]:
                rejects.append(self.too_large(block.oversized(i), line))
            elif not is_valid_utf8(text[i : i + 1]):
                rejects.append(self.maker.invalid_utf8(position, data, line=line))
            else:
                good[i] = True
        return Parsed(text.filter(pa.array(good)), block.positions[good], rejects)


def _gather(block: Block) -> pa.LargeStringArray:
    """The records of a block as one array: between interleaved bounds stand record, gap, record, ...; gaps are dropped."""
    bounds = np.empty(2 * len(block.starts), np.int64)
    bounds[0::2], bounds[1::2] = block.starts, block.ends
    pieces = pa.LargeStringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(block.data))
    return pieces.take(pa.array(np.arange(0, len(pieces), 2)))


def read_whole(
    stream: ByteStream, start: int, chunk_bytes: int, max_bytes: int, growing: Growing | None = None
) -> Iterator[Piece]:
    """The file as one document (none if `start` says that it was read already)."""
    if start:
        return
    document = Unfinished(len(BOM) + max_bytes, growing)
    try:
        for chunk in stream.chunks(0, chunk_bytes):
            document.add(chunk)
    except DamagedStream as error:
        yield Damage(0, document.size, document.head, str(error))
        return
    if document.is_oversized:
        yield Oversized(0, document.size, document.head)
        return
    data = document.finish()
    begin = len(BOM) if data.startswith(BOM) else 0
    # Never of size 0, so that the position after the document differs from the one before it.
    yield Block(data or b"\n", 0, np.array([begin]), np.array([len(data)]))


def read_separated(
    stream: ByteStream, separator: bytes, start: int, chunk_bytes: int, max_bytes: int, growing: Growing | None = None
) -> Iterator[Piece]:
    """Documents between separators, found from left to right. `start` must be the start of a document."""
    overlap = len(separator) - 1  # so much of a separator may stand at the end of a chunk
    limit = max_bytes + overlap
    document = Unfinished(limit, growing)
    tail = b""  # its last bytes
    offset = start  # of the unfinished document
    try:
        for chunk in stream.chunks(start, chunk_bytes):
            if offset == 0 and not document.size and chunk.startswith(BOM):
                chunk, offset = chunk[len(BOM) :], len(BOM)
            joined = tail + chunk
            first = joined.find(separator)
            if first < 0:
                document.add(chunk)
                tail = joined[max(len(joined) - overlap, 0) :]
                continue
            end = first + len(separator) - len(tail)
            if document.size + end > limit + 1:
                document.add(chunk[:end])
                yield Oversized(offset, document.size, document.head)
                offset += document.size
                document.clear()
                chunk = chunk[end:]
            data = document.finish(chunk)
            pieces = pc.split_pattern(pa.array([data], pa.large_binary()), pattern=separator).values
            sizes = pc.binary_length(pieces).to_numpy(zero_copy_only=False)
            starts = np.concatenate([[0], np.cumsum(sizes + len(separator))])
            last = len(sizes) - 1  # what follows the last separator goes on in the next chunk
            if last:
                yield Block(data[: starts[last]], offset, starts[:last], starts[:last] + sizes[:last])
            rest = data[starts[last] :]
            document.add(rest)
            tail = rest[max(len(rest) - overlap, 0) :]
            offset += int(starts[last])
    except DamagedStream as error:
        yield Damage(offset, document.size, document.head, str(error))
        return
    if document.is_oversized:
        yield Oversized(offset, document.size, document.head)
    elif document.size:
        data = document.finish()
        yield Block(data, offset, np.array([0]), np.array([len(data)]))
