"""JSON lines -> text batches.

In: a stream of lines, one JSON object each. Out: the text field of every good record in one Arrow array, a reject for
every other. msgspec takes whole blocks at several hundred MB/s but gives up on a block for one bad line; then the block
is halved until the bad line stands alone. So a line is good or bad by itself, whatever its neighbours are. A line that
msgspec refuses gets a second chance with Python's own `json`, which wrote most of the JSON lines there are: it takes `NaN`,
and half a surrogate pair outside the text.

The one place on the hot path where a document is, for the time of a block, a Python string: decoding with msgspec and
handing the strings to Arrow is 1.3 to 1.8 times as fast as Arrow's own JSON reader on English text and code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tokpress.batches import Int64s
from tokpress.config import ReadConfig
from tokpress.errors import InputError
from tokpress.records import STDIN, Input, Reject
from tokpress.sources.base import Growing, empty_text
from tokpress.sources.blocks import NO_POSITIONS, Block, LineCounter, Parsed, Piece, StreamReader, in_halves
from tokpress.sources.compression import ByteStream, DamagedStream
from tokpress.sources.fields import BAD_LINE, Found, JsonFields, field_names, join_found
from tokpress.sources.lines import read_lines

_OPEN_BRACE, _CLOSE_BRACE = ord("{"), ord("}")
_BLANKS = b" \t\r\n"
_HEAD_BYTES = 2**20


class JsonlReader(StreamReader):
    def __init__(
        self, source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
    ) -> None:
        super().__init__(source, index, config, batch_bytes, growing)
        self._fields = JsonFields(config)

    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:
        return read_lines(stream, start, stop, self.chunk_bytes, self.max_bytes, self.growing)

    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        found: list[Found] = []
        good: list[Int64s] = []
        bad: list[int] = []
        for first, _, parsed in in_halves(len(block.starts), partial(self._parse_together, block)):
            if self.most_bad is not None and len(bad) >= self.most_bad:
                break
            if parsed is not None:
                records, which, without_text = parsed
                found.append(records)
                good.append(which)
                bad.extend(without_text)
            elif (record := self._second_chance(block, first)) is not None:
                found.append(record)
                good.append(np.array([first]))
            else:
                bad.append(first)
        rejects = [self._reject(block, i, lines) for i in bad]
        which = np.concatenate(good) if good else NO_POSITIONS
        text, kept = join_found(found)
        return Parsed(text, block.positions[which], rejects, kept)

    def _parse_together(self, block: Block, first: int, last: int) -> tuple[Found, Int64s, list[int]] | None:
        """Lines first..last at once: what is in them, which lines these are, and which lines lack a text.

        None if a line among them is bad. Every line that is not blank must begin with "{" and end with "}", and there
        must be as many records as such lines. Both together mean that record i is line i: no JSON string holds a line
        end, and after a "}" JSON cannot go on with "{" unless a new record starts there.
        """
        starts, ends = block.starts[first:last], block.ends[first:last]
        if (ends - starts).max() > self.max_bytes:
            return None
        if last - first == 1:
            starts, ends = _without_blanks(block.data, int(starts[0]), int(ends[0]))
        filled = ends > starts
        which = np.flatnonzero(filled) + first
        if not len(which):
            return Found(empty_text()), which, []
        if len(which) < len(starts):
            starts, ends = starts[filled], ends[filled]
        codes = np.frombuffer(block.data, np.uint8)
        is_object = (codes[starts] == _OPEN_BRACE) & (codes[ends - 1] == _CLOSE_BRACE)
        if not is_object.all():
            return None
        try:
            found = self._fields.parse(memoryview(block.data)[starts[0] : ends[-1]])
        except BAD_LINE:
            return None
        text, kept = found
        if len(text) != len(which):
            return None
        if not text.null_count:
            return found, which, []
        present = text.is_valid()
        filled = present.to_numpy(zero_copy_only=False)
        found = Found(text.drop_null(), None if kept is None else kept.filter(present))
        return found, which[filled], which[~filled].tolist()

    def _second_chance(self, block: Block, i: int) -> Found | None:
        line = block.data[block.starts[i] : block.ends[i]]
        return self._fields.parse_with_python(line) if len(line) <= self.max_bytes else None

    def _reject(self, block: Block, i: int, lines: LineCounter) -> Reject:
        """Why line i, which is bad by itself, is bad."""
        line = block.data[block.starts[i] : block.ends[i]]
        first = lines.line_at(block.offset)
        number = None if first is None else first + i
        if len(line) > self.max_bytes:
            return self.too_large(block.oversized(i), number)
        reason, detail = self._fields.explain(line.strip(_BLANKS))
        return self.maker.reject(int(block.positions[i]), reason, detail, line, line=number)


def first_fields(source: Input) -> list[str]:
    """What the first record has, as options name it; nothing where it is no object or cannot be read again."""
    if source.path == STDIN or source.format != "jsonl":
        return []
    try:
        head = next(ByteStream(source).chunks(0, _HEAD_BYTES), b"")
    except (InputError, DamagedStream):
        return []
    return field_names(head.lstrip().partition(b"\n")[0])


def _without_blanks(data: bytes, start: int, end: int) -> tuple[Int64s, Int64s]:
    line = data[start:end]
    start += len(line) - len(line.lstrip(_BLANKS))
    return np.array([start]), np.array([start + len(line.strip(_BLANKS))])
