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

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import BAD_JSON, INVALID_UTF8, MISSING_FIELD, WRONG_TYPE, Int64s, Reject
from tokpress.config import ReadConfig
from tokpress.errors import UsageError
from tokpress.sources.base import Input, empty_text
from tokpress.sources.blocks import NO_POSITIONS, Block, LineCounter, Parsed, Piece, StreamReader
from tokpress.sources.compression import ByteStream
from tokpress.sources.lines import read_lines

_OPEN_BRACE, _CLOSE_BRACE = ord("{"), ord("}")
_BLANKS = b" \t\r\n"
_BAD_LINE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # a wrong type is a DecodeError too


class JsonlReader(StreamReader):
    def __init__(self, source: Input, index: int, config: ReadConfig, batch_bytes: int) -> None:
        super().__init__(source, index, config, batch_bytes)
        self._field = _Field(config.field_path)

    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:
        return read_lines(stream, start, stop, self.chunk_bytes, self.max_bytes)

    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        texts: list[pa.LargeStringArray] = []
        kept: list[Int64s] = []
        bad: list[int] = []
        todo = [(0, len(block.starts))]
        while todo:
            first, last = todo.pop()
            parsed = self._parse_together(block, first, last)
            if parsed is not None:
                text, which, without_text = parsed
                texts.append(text)
                kept.append(which)
                bad.extend(without_text)
            elif last - first > 1:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]  # the first half is popped first: order is kept
            elif (text := self._second_chance(block, first)) is not None:
                texts.append(text)
                kept.append(np.array([first]))
            else:
                bad.append(first)
        rejects = [self._reject(block, i, lines) for i in bad]
        text = texts[0] if len(texts) == 1 else pa.concat_arrays(texts) if texts else empty_text()
        which = np.concatenate(kept) if kept else NO_POSITIONS
        return text, block.positions[which], rejects

    def _parse_together(
        self, block: Block, first: int, last: int
    ) -> tuple[pa.LargeStringArray, Int64s, list[int]] | None:
        """Lines first..last at once: their texts, which lines these are, and which lines lack a text.

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
            return empty_text(), which, []
        if len(which) < len(starts):
            starts, ends = starts[filled], ends[filled]
        codes = np.frombuffer(block.data, np.uint8)
        is_object = (codes[starts] == _OPEN_BRACE) & (codes[ends - 1] == _CLOSE_BRACE)
        if not is_object.all():
            return None
        try:
            text = self._field.parse(memoryview(block.data)[starts[0] : ends[-1]])
        except _BAD_LINE:
            return None
        if len(text) != len(which):
            return None
        if not text.null_count:
            return text, which, []
        present = text.is_valid().to_numpy(zero_copy_only=False)
        return text.drop_null(), which[present], which[~present].tolist()

    def _second_chance(self, block: Block, i: int) -> pa.LargeStringArray | None:
        line = block.data[block.starts[i] : block.ends[i]]
        text = self._field.parse_with_python(line) if len(line) <= self.max_bytes else None
        try:
            return None if text is None else pa.array([text], pa.large_string())
        except UnicodeEncodeError:  # half a surrogate pair
            return None

    def _reject(self, block: Block, i: int, lines: LineCounter) -> Reject:
        """Why line i, which is bad by itself, is bad."""
        line = block.data[block.starts[i] : block.ends[i]]
        number = (lines.line_at(block.offset) or 1) + i
        if len(line) > self.max_bytes:
            return self.too_large(block.oversized(i), number)
        reason, detail = self._field.explain(line.strip(_BLANKS))
        return self.maker.reject(int(block.positions[i]), reason, detail, line, line=number)


def _without_blanks(data: bytes, start: int, end: int) -> tuple[Int64s, Int64s]:
    line = data[start:end]
    start += len(line) - len(line.lstrip(_BLANKS))
    return np.array([start]), np.array([start + len(line.strip(_BLANKS))])


class _Field:
    """Takes one field out of JSON objects; the rest is skipped."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        kind: Any = str | None
        for name in reversed(path):
            try:
                kind = msgspec.defstruct("Record", [("value", kind | None, None)], rename={"value": name}, gc=False)
            except ValueError as error:
                raise UsageError(f"--text-field {'.'.join(path)!r} cannot be used for JSON: {error}.") from error
        self._decoder = msgspec.json.Decoder(kind)

    def parse(self, lines: memoryview | bytes) -> pa.LargeStringArray:
        """The field of every object, null where there is none. Raises one of _BAD_LINE if an object is bad."""
        values = [record.value for record in self._decoder.decode_lines(lines)]
        for _ in self._path[1:]:
            values = [None if record is None else record.value for record in values]
        return pa.array(values, pa.large_string())

    def parse_with_python(self, line: bytes) -> str | None:
        """The field of one object; None if there is none, or no such object."""
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError):
            return None
        for name in self._path:
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None

    def explain(self, line: bytes) -> tuple[str, str]:
        """Reason and detail for a line that `parse` gives no text for."""
        if not (line.startswith(b"{") and line.endswith(b"}")):
            cut = line.startswith(b"{")
            return BAD_JSON, "the object is not closed on its line" if cut else "the line is not a JSON object"
        try:
            records = len(self.parse(line))
        except UnicodeDecodeError as error:
            return INVALID_UTF8, f"byte 0x{error.object[error.start]:02x} in the text: {error.reason}"
        except msgspec.ValidationError as error:
            return WRONG_TYPE, str(error).replace("$[0]", "$")
        except msgspec.DecodeError as error:
            if self.parse_with_python(line) is not None:
                return INVALID_UTF8, "half a surrogate pair in the text stands for no character"
            return BAD_JSON, str(error).removeprefix("JSON is malformed: ")
        except RecursionError:
            return BAD_JSON, "nested too deeply"
        if records != 1:
            return BAD_JSON, f"{records} JSON objects on one line"
        return MISSING_FIELD, f"no text at field {'.'.join(self._path)!r}; choose one with --text-field"
