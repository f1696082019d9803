"""Arrow IPC files and streams (Feather, Hugging Face `save_to_disk`) -> text batches.

In: an IPC file or stream, told apart by its first bytes. Out: the text column, memory-mapped where it is not compressed.
A file that ends early gives the record batches before the cut, then a reject.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tokpress.batches import TextBatch
from tokpress.errors import InputError
from tokpress.sources.opening import open_input
from tokpress.sources.rows import LostRows, RowReader, Rows, run_starts
from tokpress.storage.mapped import current_size

_FILE_MAGIC = b"ARROW1"
_FILE_STREAM_START = 8  # in an IPC file, a stream begins after the padded magic
_END_OF_STREAM = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")  # as written now, and before Arrow 0.15
_TRAILER_BYTES = 4096  # looked at behind the end of a stream: more than padding there is not what a writer leaves
_SLICE_ROWS = 4096


class ArrowReader(RowReader):
    def read(self, start: int = 0, stop: int | None = None) -> Iterator[TextBatch]:
        """The file is mapped, and memory behind its end ends the process: so its size is looked at before each batch."""
        batches = super().read(start, stop)
        while True:
            if current_size(self.source.path) < self.source.size:
                raise InputError(
                    f"{self.source.path} has become shorter while it was being read. Let it rest, then build anew with "
                    "--overwrite."
                )
            batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def probe(self, fraction: float) -> int:  # noqa: ARG002 - rows of later batches are not known without reading
        return 0

    def cuts(self, unit_bytes: int) -> list[int]:
        """Record batches are counted without reading their rows, unless they are compressed: such a file is one unit."""
        return run_starts(self._sizes(), unit_bytes)

    def _sizes(self) -> Iterator[tuple[int, int]]:
        before = 0
        allocated = pa.total_allocated_bytes()
        for batch, consumed in self._batches():
            if isinstance(batch, str) or pa.total_allocated_bytes() > allocated:  # the rows were unpacked
                return
            yield batch.num_rows, consumed - before
            before = consumed

    def slices(self, start: int, stop: int | None) -> Iterator[Rows | LostRows]:
        row = 0
        progress = 0
        for batch, consumed in self._batches():
            input_bytes, progress = consumed - progress, consumed
            if stop is not None and row >= stop:
                return
            if isinstance(batch, str):
                if row >= start:
                    yield LostRows(row, 0, batch, input_bytes)
                return
            first = max(start - row, 0)
            last = batch.num_rows if stop is None else min(stop - row, batch.num_rows)
            if first < last:
                yield from self._slices_of(batch, row, first, last, input_bytes)
            row += batch.num_rows

    def _slices_of(
        self, batch: pa.RecordBatch, row: int, first: int, last: int, input_bytes: int
    ) -> Iterator[Rows | LostRows]:
        self.check_columns(batch.schema)
        try:
            for name in self.column_names(batch.schema):
                batch.column(name).validate()  # what slicing relies on; the rows are checked with each slice
        except pa.ArrowInvalid as error:
            yield LostRows(row + first, last - first, f"corrupt rows: {error}", input_bytes)
            return
        for begin in range(first, last, _SLICE_ROWS):
            end = min(begin + _SLICE_ROWS, last)
            yield self.rows(batch, begin, end, first_row=row, input_bytes=input_bytes * (end - begin) // batch.num_rows)

    def _batches(self) -> Iterator[tuple[pa.RecordBatch | str, int]]:
        """Record batches with the bytes read so far; a string says that there should be more and why there is not."""
        size = self.source.size
        try:
            with open_input(self.source, mapped=True) as file:
                if file.read(len(_FILE_MAGIC)) != _FILE_MAGIC:
                    file.seek(0)
                    yield from _stream(file, size)
                    if file.read(_TRAILER_BYTES).strip(b"\0"):
                        yield (
                            "something follows the end of the Arrow stream, and is not read: one file, one stream",
                            size,
                        )
                    return
                try:
                    reader = pa.ipc.open_file(file)
                except pa.ArrowInvalid as error:  # no footer: read what stands before the cut
                    file.seek(_FILE_STREAM_START)
                    yield from _stream(file, size)
                    yield f"not a complete Arrow file (truncated?): {error}", size
                    return
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i), size * (i + 1) // reader.num_record_batches
        except (pa.ArrowException, OSError) as error:
            self.raise_if_io(error)
            yield f"not a complete Arrow file (truncated?): {error}", size


def _stream(file: pa.NativeFile, size: int) -> Iterator[tuple[pa.RecordBatch | str, int]]:
    reader = pa.ipc.open_stream(file)
    end = file.tell()
    for batch in reader:
        end = file.tell()
        yield batch, end
    file.seek(end)
    if not file.read(8).startswith(_END_OF_STREAM):
        yield "the Arrow stream has no end mark: the file is truncated", size
