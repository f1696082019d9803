"""CSV and TSV -> text batches.

In: a stream of records, the first of which names the columns. Out: one column as text, others beside it. Fields may be in
quotes, and hold line ends then; a record with more or fewer fields than there are columns is a reject. All values are text:
an empty field is an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tokpress.batches import Int64s
from tokpress.config import ReadConfig, split_path
from tokpress.errors import InputError
from tokpress.records import BAD_CSV, Input, Reject
from tokpress.sources.base import Growing, empty_text, is_valid_utf8
from tokpress.sources.blocks import NO_POSITIONS, Block, Damage, LineCounter, Parsed, Piece, StreamReader, in_halves
from tokpress.sources.compression import ByteStream
from tokpress.sources.csv_records import read_records
from tokpress.sources.kept import column_as_json, column_as_text

DELIMITERS = {"csv": ",", "tsv": "\t"}
_HEADER_BYTES = 64 * 1024


class _Rows(NamedTuple):
    """Some records of a block: the columns that are read, as bytes; which records these are; what the others have."""

    columns: list[pa.LargeBinaryArray]
    which: Int64s
    wrong: dict[int, int]  # records with another number of fields than there are columns


class CsvReader(StreamReader):
    can_start_anywhere = False

    def __init__(
        self, source: Input, index: int, config: ReadConfig, batch_bytes: int, growing: Growing | None = None
    ) -> None:
        super().__init__(source, index, config, batch_bytes, growing)
        self._config = config
        self._delimiter = DELIMITERS[source.format]
        self._names: list[str] = []  # of all columns, once the first record was read
        self._wanted: list[str] = []  # of those that are read

    def lines_in(self, block: Block) -> int:
        return block.data.count(b"\n")

    def pieces(self, stream: ByteStream, start: int, stop: int | None) -> Iterator[Piece]:  # noqa: ARG002 - one unit a file
        if start and not self._names:
            header = read_records(
                ByteStream(self.source), self._delimiter.encode(), 0, _HEADER_BYTES, self.max_bytes, self.growing
            )
            for _ in self._without_header(header):
                break
        records = read_records(stream, self._delimiter.encode(), start, self.chunk_bytes, self.max_bytes, self.growing)
        yield from records if start else self._without_header(records)

    def _without_header(self, records: Iterator[Piece]) -> Iterator[Piece]:
        for piece in records:
            if isinstance(piece, Damage):
                yield piece
                return
            if not isinstance(piece, Block):
                raise InputError(
                    f"the first row of {self.source.path} should name the columns, but has {piece.size:,} bytes. "
                    "Check the quotes in it."
                )
            named = next((i for i in range(len(piece.starts)) if piece.ends[i] > piece.starts[i]), None)
            if named is None:  # blank lines stand before it
                yield Block(piece.data, piece.offset, NO_POSITIONS, NO_POSITIONS)
                continue
            self._name_columns(piece.data[piece.starts[named] : piece.ends[named]] + b"\n")
            rest = int(piece.starts[named + 1]) if named + 1 < len(piece.starts) else len(piece.data)
            yield Block(piece.data[:rest], piece.offset, NO_POSITIONS, NO_POSITIONS)
            if rest < len(piece.data):
                yield Block(
                    piece.data[rest:],
                    piece.offset + rest,
                    piece.starts[named + 1 :] - rest,
                    piece.ends[named + 1 :] - rest,
                )
            break
        yield from records

    def _name_columns(self, header: bytes) -> None:
        try:
            options = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(header) + 1)
            names = pyarrow.csv.read_csv(pa.BufferReader(header), options, self._parse_options()).schema.names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise InputError(
                f"the first row of {self.source.path} should name the columns, and cannot be read: {error}."
            ) from error
        self._names, self._wanted = names, self._columns_to_read(names)

    def _columns_to_read(self, names: list[str]) -> list[str]:
        config = self._config
        option = {"text": "--prompt-field" if config.required else "--text-field", "json": "--messages-field"}
        wanted = [] if config.kind == "record" else [(self._column(config.text_field), option[config.kind])]
        wanted += [(self._column(field), "--completion-field") for field in config.required]
        wanted += [(self._column(field), "--keep") for field in config.keep if field not in config.optional]
        for name, choice in wanted:
            if names.count(name) != 1:
                has = "more than one" if name in names else "no"
                raise InputError(
                    f"{self.source.path} has {has} column {name!r}. Columns, as its first row names them: "
                    f"{', '.join(names)}. Choose one with {choice}."
                )
        if config.kind == "record" and len(set(names)) < len(names):
            raise InputError(f"{self.source.path} has columns of the same name: {', '.join(names)}. Rename them.")
        optional = [self._column(field) for field in config.optional if self._column(field) in names]
        return names if config.kind == "record" else [*(name for name, _ in wanted), *optional]

    @staticmethod
    def _column(field: str) -> str:
        """A dotted field is the column of that name: there are no records inside of records here."""
        return ".".join(split_path(field))

    def _parse_options(self, on_invalid_row: Callable[[Any], str] | None = None) -> pyarrow.csv.ParseOptions:
        return pyarrow.csv.ParseOptions(
            delimiter=self._delimiter,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=on_invalid_row,
        )

    def parse(self, block: Block, lines: LineCounter) -> Parsed:
        parts: list[_Rows] = []
        rejects: list[Reject] = []
        for first, _, rows in in_halves(len(block.starts), partial(self._rows, block)):
            if rows is None:
                rejects.append(self._bad_alone(block, first, lines))
                continue
            for i, fields in rows.wrong.items():
                detail = f"{fields} fields, but the first row names {len(self._names)} columns"
                rejects.append(self._reject(block, i, lines, BAD_CSV, detail))
            parts.append(rows)
        if not parts:
            return Parsed(empty_text(), NO_POSITIONS, rejects, self._beside([], 0))
        columns = [pa.concat_arrays(column) for column in zip(*(part.columns for part in parts), strict=True)]
        which = np.concatenate([part.which for part in parts])
        columns, which, invalid = self._valid(columns, which, block, lines)
        rejects = sorted([*rejects, *invalid], key=lambda reject: reject.position)
        return Parsed(self._text(columns), block.positions[which], rejects, self._beside(columns, len(which)))

    def _rows(self, block: Block, first: int, last: int) -> _Rows | None:
        """Records first..last at once; None if one of them is not one row, or too large."""
        starts, ends = block.starts[first:last], block.ends[first:last]
        which = np.flatnonzero(ends > starts) + first
        if not len(which):
            return _Rows([pa.array([], pa.large_binary())] * len(self._wanted), which, {})
        if (ends - starts).max() > self.max_bytes:
            return None
        data = block.data[starts[0] : ends[-1]]
        if len(which) < len(starts):  # without blank lines
            data = b"\n".join(block.data[block.starts[i] : block.ends[i]] for i in which.tolist())
        if len(which) > 1 and data.count(b"\r") != data.count(b"\r\n"):
            return None  # pyarrow ends a row there, unless it stands in quotes: only of one alone can that be told
        wrong: dict[int, int] = {}
        names = [str(i) for i in range(len(self._names))]
        wanted = [str(self._names.index(name)) for name in self._wanted]

        def skip(row: Any) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
                self._parse_options(skip),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.large_binary()), include_columns=wanted, check_utf8=False
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows + len(wrong) != len(which):
            return None
        columns = [column.combine_chunks() for column in table.columns]
        return _Rows(columns, np.delete(which, list(wrong)), {int(which[i]): fields for i, fields in wrong.items()})

    def _valid(
        self, columns: list[pa.LargeBinaryArray], which: Int64s, block: Block, lines: LineCounter
    ) -> tuple[list[pa.LargeBinaryArray], Int64s, list[Reject]]:
        """Those records whose texts are UTF-8, and rejects for the others."""
        texts = columns if self._config.kind == "record" else columns[: 1 + len(self._config.required)]
        if all(is_valid_utf8(column.view(pa.large_string())) for column in texts):
            return columns, which, []
        good = np.ones(len(which), bool)
        rejects = []
        for k, i in enumerate(which.tolist()):  # one by one, but only where something is bad
            values = (column[k : k + 1].view(pa.large_string()) for column in texts)
            bad = next((value for value in values if not is_valid_utf8(value)), None)
            if bad is not None:
                good[k] = False
                data = bad.view(pa.large_binary())[0].as_py()
                rejects.append(self.maker.invalid_utf8(int(block.positions[i]), data, line=_line(block, i, lines)))
        return [column.filter(pa.array(good)) for column in columns], which[good], rejects

    def _text(self, columns: list[pa.LargeBinaryArray]) -> pa.LargeStringArray:
        if self._config.kind != "record":
            return columns[0].view(pa.large_string())
        texts = [column.view(pa.large_string()) for column in columns]
        return column_as_json(pa.StructArray.from_arrays(texts, self._wanted)).view(pa.large_string())

    def _beside(self, columns: list[pa.LargeBinaryArray], count: int) -> pa.RecordBatch | None:
        """The other fields that were asked for; null where an optional one is no column."""
        config = self._config
        found = dict(zip(self._wanted, columns, strict=False))
        names = [*config.required, *config.keep]
        nulls = pa.nulls(count, pa.large_binary())
        beside = [column_as_text(found.get(self._column(name), nulls)) for name in names]
        return pa.record_batch(beside, names=names) if names else None

    def _bad_alone(self, block: Block, i: int, lines: LineCounter) -> Reject:
        """Why record i is no row."""
        if block.ends[i] - block.starts[i] > self.max_bytes:
            return self.too_large(block.oversized(i), _line(block, i, lines))
        return self._reject(block, i, lines, BAD_CSV, "a carriage return outside of quotes ends a line in the middle")

    def _reject(self, block: Block, i: int, lines: LineCounter, reason: str, detail: str) -> Reject:
        data = block.data[block.starts[i] : block.ends[i]]
        return self.maker.reject(int(block.positions[i]), reason, detail, data, line=_line(block, i, lines))


def _line(block: Block, i: int, lines: LineCounter) -> int | None:
    first = lines.line_at(block.offset)
    return None if first is None else first + block.data.count(b"\n", 0, int(block.starts[i]))
