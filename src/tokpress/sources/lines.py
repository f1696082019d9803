"""A byte stream as blocks of whole lines.

In: chunks of a stream, from a start that need not be the start of a line. Out: `Block`s of about the chunk size, each
ending at a line's end, with the lines' bounds as arrays. A line over the limit is skipped without being held, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokpress.batches import PREVIEW_BYTES
from tokpress.sources.blocks import BOM, Block, Damage, Oversized
from tokpress.sources.compression import ByteStream, DamagedStream

_NEWLINE = 0x0A
_RETURN = 0x0D


def read_lines(
    stream: ByteStream, start: int, stop: int | None, chunk_bytes: int, max_line_bytes: int
) -> Iterator[Block | Oversized | Damage]:
    """The lines that start in [start, stop). A line starts at byte 0 or after a newline."""
    held: list[bytes] = []  # the beginning of a line whose end has not come yet
    held_bytes = 0
    skipping = False  # inside a line that is too long: only its size and head are kept
    head = b""
    offset = max(start - 1, 0)  # of held[0]; one byte early, to see whether a line starts exactly at `start`
    seek_line = start > 0
    damage: str | None = None
    chunks = stream.chunks(offset, chunk_bytes)
    while True:
        try:
            chunk = next(chunks, b"")
        except DamagedStream as error:
            chunk, damage = b"", str(error)
        if not chunk:
            break
        if offset == 0 and not held and not skipping and chunk.startswith(BOM):
            chunk, offset = chunk[len(BOM) :], len(BOM)
        if seek_line:
            newline = chunk.find(b"\n") + 1
            offset += newline or len(chunk)
            if not newline:
                continue
            chunk, seek_line = chunk[newline:], False
        if stop is not None and not held_bytes and offset >= stop:
            return
        # A line that began before `chunk` ends inside it, or swallows it whole.
        if held_bytes:
            newline = chunk.find(b"\n") + 1
            rest = newline or len(chunk)
            if held_bytes + rest > max_line_bytes + 2:
                if not skipping:
                    head, skipping = b"".join(held)[:PREVIEW_BYTES], True
                    held = []
                held_bytes += rest
                if not newline:
                    continue
                yield Oversized(offset, held_bytes, head)
                offset, held_bytes, skipping = offset + held_bytes, 0, False
                chunk = chunk[newline:]
                if stop is not None and offset >= stop:
                    return
            elif not newline:
                held.append(chunk)
                held_bytes += len(chunk)
                continue
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = b"".join([*held, memoryview(chunk)[:cut]]) if held or cut < len(chunk) else chunk
            held, held_bytes = [], 0
            end = len(data)
            if stop is not None and offset + end > stop:  # the line that starts at or after `stop` is not ours
                end = data.find(b"\n", max(stop - 1 - offset, 0)) + 1
            yield _block(data[:end] if end < len(data) else data, offset)
            offset += len(data)
            if stop is not None and offset >= stop:
                return
        if cut < len(chunk):
            held, held_bytes = [chunk[cut:]], len(chunk) - cut
    if damage is not None:
        yield Damage(offset, head if skipping else b"".join(held), damage)
    elif skipping:
        yield Oversized(offset, held_bytes, head)
    elif held_bytes:
        yield _block(b"".join(held), offset)


def _block(data: bytes, offset: int) -> Block:
    """Finds the lines of `data`; a missing newline at the very end is fine, and "\\r\\n" ends a line as well."""
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    returns = (ends > starts) & (codes[ends - 1] == _RETURN)
    return Block(data, offset, starts, ends - returns)
