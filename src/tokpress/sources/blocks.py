"""Records cut out of a byte stream, and the loop that all stream readers share.

In: a stream, cut by a subclass into `Block`s (records with their bounds), `Oversized` records and `Damage`. Out: batches
in which each of these became text or a reject.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tokpress.batches import PREVIEW_BYTES, Int64s, TextBatch
from tokpress.config import ReadConfig
from tokpress.records import DAMAGED_INPUT, STDIN, TOO_LARGE, Input, Reject
from tokpress.sources.base import BatchMaker, Growing, empty_text
from tokpress.sources.compression import ByteStream

BOM = b"\xef\xbb\xbf"
MIN_CHUNK_BYTES = 64
NO_POSITIONS: Int64s = np.empty(0, np.int64)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Oversized:
    """A record that is passed over; `size` and `head` are of all that stands before the next one."""

    offset: int
    size: int
    head: bytes
    lines: int = 1  # line ends in it


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records. Record i is `data[starts[i]:ends[i]]`, without byte order mark, line end or separator."""

    data: bytes
    offset: int  # of data[0] in the stream
    starts: Int64s
    ends: Int64s

    @property
    def positions(self) -> Int64s:
        """Where in the stream each record starts. A byte order mark belongs to the first one, to find it again there."""
        positions = self.starts + self.offset
        positions[:1] = self.offset
        return positions

    def oversized(self, i: int) -> Oversized:
        """Record i as one to pass over."""
        begin = int(self.starts[i]) if i else 0
        end = int(self.starts[i + 1]) if i + 1 < len(self.starts) else len(self.data)
        return Oversized(self.offset + begin, end - begin, self.data[begin : min(begin + PREVIEW_BYTES, end)])


@dataclass(frozen=True, slots=True)
class Damage:
    """The stream broke in this record, of which there was `size`."""

    offset: int
    size: int
    head: bytes
    message: str


class Unfinished:
    """The beginning of a record whose end has not come yet. Over the limit only its size and head are kept."""

    def __init__(self, max_bytes: int, growing: Growing | None = None) -> None:
        self._max_bytes = max_bytes
        self._growing = growing
        self.clear()

    def clear(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        self.head = b""

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self.head += part[: PREVIEW_BYTES - len(self.head)]
        self._parts.append(part)
        if self.is_oversized:
            self._parts.clear()
        elif self._growing:
            self._growing(self.size)

    @property
    def is_oversized(self) -> bool:
        return self.size > self._max_bytes

    def finish(self, end: bytes | memoryview = b"") -> bytes:
        """All of it, up to and with `end`. Begins anew."""
        data = b"".join([*self._parts, end])
        self.clear()
        return data


Piece = Block | Oversized | Damage


class Parsed(NamedTuple):
    """A block's good records, and what is wrong with the others."""

    text: pa.LargeStringArray
    positions: Int64s
    rejects: list[Reject]
    kept: pa.RecordBatch | None = None


def in_halves(count: int, parse: Callable[[int, int], _T | None]) -> Iterator[tuple[int, int, _T | None]]:
    """Records 0..count in order, as few at a time as `parse` takes together: where it returns None they are halved, until
    one stands alone. So a record is good or bad by itself, whatever its neighbours are."""
    todo = [(0, count)] if count else []
    while todo:
        first, last = todo.pop()
        parsed = parse(first, last)
        if parsed is not None or last - first <= 1:
            yield first, last, parsed
            continue
        middle = (first + last) // 2
        todo += [(middle, last), (first, middle)]  # the first half is popped first: order is kept


class StreamReader(ABC):
    """A reader of records in a byte stream. Positions are byte offsets in the decompressed stream."""

    most_bad: int | None = None
    has_lines = True  # a record is a line, so that rejects can say which one

    def __init__(
        self, source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
    ) -> None:
        self.source = source
        self.maker = BatchMaker(source, index)
        self.max_bytes = config.max_doc_bytes
        self.chunk_bytes = max(batch_bytes, MIN_CHUNK_BYTES)
        self.growing = growing

    @abstractmethod
    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:
        """The records that start in [start, stop), cut out of the stream."""

    @abstractmethod
    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        """The text of a block's records, and what is wrong with those that have none."""

    def lines_in(self, block: Block) -> int:
        """How many lines a block has."""
        return len(block.starts)

    @property
    def can_start_anywhere(self) -> bool:
        """Whether a record can be found from any byte on, without what stands before."""
        return self.has_lines and not self.source.compression and self.source.path != STDIN

    def probe(self, fraction: float) -> int:
        return int(self.source.size * fraction) if self.can_start_anywhere else 0

    def cuts(self, unit_bytes: int) -> list[int]:
        pieces = max(self.source.size // unit_bytes, 1) if self.can_start_anywhere else 1
        return [self.source.size * i // pieces for i in range(pieces)]

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[TextBatch]:
        stream = ByteStream(self.source)
        # To count lines, all that stands before is read again: not over a network, for each piece of a large file.
        counting = self.has_lines and not (self.source.is_remote and self.can_start_anywhere)
        lines = LineCounter(self.source, counting=counting)
        consumed = 0
        for piece in self.pieces(stream, start, stop):
            began = perf_counter()
            match piece:
                case Block(offset=offset):
                    parsed = self.parse(piece, lines)
                    size, num_lines = len(piece.data), self.lines_in(piece)
                case Oversized(offset, size):
                    parsed, num_lines = _only(self.too_large(piece, lines.line_at(offset))), piece.lines
                case Damage(offset, size, head, message):
                    line = lines.line_at(offset)
                    parsed, num_lines = _only(self.maker.reject(offset, DAMAGED_INPUT, message, head, line=line)), 1
                    size += 1  # past the end: going on from there does not meet the damage again
            lines.passed(offset, size, num_lines)
            del piece  # the raw bytes are not needed while the text is encoded
            batch = self.maker.batch(
                parsed.text,
                parsed.positions,
                parsed.rejects,
                next_position=offset + size,
                # What was read ahead is another unit's, unless this is the only one that reads the file.
                input_bytes=stream.consumed - consumed if self.source.compression else size,
                parse_seconds=perf_counter() - began,
                kept=parsed.kept,
            )
            consumed = stream.consumed
            del parsed
            yield batch
            del batch

    def too_large(self, record: Oversized, line: int | None) -> Reject:
        sizes = f"the record takes {record.size:,} bytes, the limit is {self.max_bytes:,}"
        detail = f"{sizes}; raise it with --max-doc-bytes"
        return self.maker.reject(record.offset, TOO_LARGE, detail, record.head, line=line)


def _only(reject: Reject) -> Parsed:
    return Parsed(empty_text(), NO_POSITIONS, [reject])


class LineCounter:
    """Numbers lines from 1. A reader that starts inside a file counts what stands before only if a line is asked for."""

    def __init__(self, source: Input, *, counting: bool) -> None:
        self._source = source
        self._counting = counting
        self._offset = 0
        self._line = 1

    def passed(self, offset: int, size: int, lines: int) -> None:
        """So many lines were read here: as long as no byte was left out, the count goes along at no cost."""
        if offset == self._offset:
            self._offset = offset + size
            self._line += lines

    def line_at(self, offset: int) -> int | None:
        if not self._counting:
            return None
        self._line += self._count(self._offset, offset)
        self._offset = offset
        return self._line

    def _count(self, start: int, stop: int) -> int:
        newlines = 0
        if start < stop:
            for chunk in ByteStream(self._source).chunks(start, 1 << 20):
                newlines += chunk[: stop - start].count(b"\n")
                start += len(chunk)
                if start >= stop:
                    break
        return newlines
