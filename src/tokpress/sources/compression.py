"""A file as a stream of decompressed chunks, from any position.

In: a path and the name of its compression. Out: `bytes` chunks of about the asked size. All codecs are driven through the
same incremental interface, which tells a finished member from a cut one: a truncated file is noticed, and every byte
before the cut is delivered first. Several members or frames in a file follow each other without a seam.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from tokpress.errors import InputError
from tokpress.sources.base import STDIN, Input

# What one `decompress` call is fed. Small, because a hostile file expands tens of thousands of times and the decoders
# return all of it at once: so a call gives at most about 130 MB. Larger feeds are not faster.
_FEED_BYTES = 4 * 1024

EXTENSIONS = {".gz": "gz", ".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".xz": "xz"}


class DamagedStream(Exception):  # noqa: N818 - caught by the readers, never shown raw
    """The compressed data ends early or is corrupt; everything before was delivered."""


def _new_decoder(compression: str) -> Any:
    if compression == "gz":
        from isal import isal_zlib

        return isal_zlib.decompressobj(wbits=31)
    if compression == "zst":
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()  # `zstd --long=31` included
    return bz2.BZ2Decompressor() if compression == "bz2" else lzma.LZMADecompressor()


def _codec_errors(compression: str) -> tuple[type[Exception], ...]:
    if compression == "gz":
        from isal import isal_zlib

        return (cast(type[Exception], isal_zlib.error), zlib.error)
    if compression == "zst":
        import zstandard

        return (zstandard.ZstdError,)
    return (OSError, ValueError, EOFError) if compression == "bz2" else (lzma.LZMAError, EOFError)


class ByteStream:
    """One input's decompressed bytes. `consumed` counts the stored bytes read so far."""

    def __init__(self, source: Input) -> None:
        self.source = source
        self.consumed = 0

    def chunks(self, start: int, size: int) -> Iterator[bytes]:
        """The bytes from `start` on, in chunks of `size` (the last one shorter). Raises DamagedStream at a cut."""
        try:
            with _open(self.source.path) as file:
                if self.source.compression is None:
                    yield from self._plain(file, start, size)
                else:
                    yield from _regroup(self._decoded(file, self.source.compression), start, size)
        except OSError as error:
            raise InputError(
                f"cannot read {self.source.path}: {error.strerror or error}. Mend that and run the same command again."
            ) from error

    def _plain(self, file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
        if start:
            file.seek(start)
        while chunk := file.read(size):
            self.consumed += len(chunk)
            yield chunk

    def _decoded(self, file: IO[bytes], compression: str) -> Iterator[bytes]:
        decode = _Members(compression)
        while fed := file.read(_FEED_BYTES):
            self.consumed += len(fed)
            yield from decode.feed(fed)
        decode.close()


class _Members:
    """Decodes members (frames, streams) one after the other."""

    def __init__(self, compression: str) -> None:
        self._new: Callable[[], Any] = lambda: _new_decoder(compression)
        self._errors = _codec_errors(compression)
        self._compression = compression
        self._decoder: Any = None  # None between two members

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decoder is None:
                data = data.lstrip(b"\0")  # padding between members; none of the formats starts with a zero
                if not data:
                    return
                self._decoder = self._new()
            try:
                out = self._decoder.decompress(data)
            except self._errors as error:
                raise DamagedStream(f"corrupt {self._compression} data: {error}") from error
            if out:
                yield out
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data
                self._decoder = None

    def close(self) -> None:
        if self._decoder is not None:
            raise DamagedStream(f"the {self._compression} data ends in the middle: the file is truncated")


def _regroup(pieces: Iterator[bytes], skip: int, size: int) -> Iterator[bytes]:
    """Pieces of any length as chunks of `size`, without the first `skip` bytes. A failing source loses nothing."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    try:
        for piece in pieces:
            if skip:
                dropped = min(skip, len(piece))
                skip -= dropped
                piece = piece[dropped:]
            waiting.append(piece)
            waiting_bytes += len(piece)
            if waiting_bytes >= size:
                yield b"".join(waiting)
                waiting, waiting_bytes = [], 0
    except DamagedStream:
        if waiting_bytes:
            yield b"".join(waiting)
        raise
    if waiting_bytes:
        yield b"".join(waiting)


def _open(path: str) -> Any:
    if path == STDIN:
        return nullcontext(standard_input(sys.stdin.buffer))
    return Path(path).open("rb", buffering=_FEED_BYTES * 16)


class PeekableInput:
    """Standard input, with a look at its head that takes nothing away: a pipe can be read only once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._head = b""

    def peek(self, size: int) -> bytes:
        if len(self._head) < size:
            self._head += self._file.read(size - len(self._head))
        return self._head[:size]

    def read(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head or self._file.read(size)

    def seek(self, position: int) -> None:
        raise InputError(f"standard input cannot be read from byte {position} on: it can only be read once, in order.")


@cache
def standard_input(file: IO[bytes]) -> PeekableInput:
    """The one reader of a pipe: what one caller peeked at, another one reads."""
    return PeekableInput(file)
