"""A file as a stream of decompressed chunks, from any position.

In: a path and the name of its compression. Out: `bytes` chunks of about the asked size. All codecs are driven through the
same incremental interface, which tells a finished member from a cut one: a truncated file is noticed, and every byte
before the cut is delivered first. Several members or frames in a file follow each other without a seam.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import IO, Protocol, cast

from tokpress.records import STDIN, Input
from tokpress.sources.opening import buffered, cannot_read

# What one `decompress` call is fed and, where the codec lets us say so, gives: a hostile file expands a million times.
# Zstandard has no such limit, but its blocks are at most 128 KiB for 4 bytes: a feed gives at most about 67 MB.
_FEED_BYTES = 2 * 1024
_MAX_OUTPUT_BYTES = 1024**2

EXTENSIONS = {".gz": "gz", ".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".xz": "xz"}


class DamagedStream(Exception):  # noqa: N818 - caught by the readers, never shown raw
    """The compressed data ends early or is corrupt; everything before was delivered."""


class _CorruptStream(DamagedStream):
    """A decoder failed, and what it had made of its last feed is lost."""


class _Decoder(Protocol):
    """What `bz2` and `lzma` agree upon. Decodes one member; the rest is `unused_data`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _ZstdDecoder:
    """Zstandard in that shape."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._frame = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()  # `zstd --long=31` included

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002 - see _FEED_BYTES
        return self._frame.decompress(data)


def _codec(compression: str) -> tuple[Callable[[], _Decoder], tuple[type[Exception], ...]]:
    """How to make a decoder, and what it raises for corrupt data."""
    if compression == "gz":
        from isal import igzip_lib

        new = lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)  # noqa: E731
        return cast(Callable[[], _Decoder], new), (cast(type[Exception], igzip_lib.error),)
    if compression == "zst":
        import zstandard

        return _ZstdDecoder, (zstandard.ZstdError,)
    if compression == "bz2":
        return bz2.BZ2Decompressor, (OSError, ValueError)
    return lzma.LZMADecompressor, (lzma.LZMAError,)


class ByteStream:
    """One input's decompressed bytes. `consumed` counts the stored bytes read so far."""

    def __init__(self, source: Input) -> None:
        self.source = source
        self.consumed = 0

    def chunks(self, start: int, size: int) -> Iterator[bytes]:
        """The bytes from `start` on, in chunks of `size` (the last one shorter). Raises DamagedStream at a cut, unless
        that stands before `start`."""
        try:
            with buffered(self.source) as file:
                if self.source.compression is None:
                    yield from self._plain(file, start, size)
                else:
                    yield from _regroup(self._decoded(file, self.source.compression), start, size)
        except OSError as error:
            raise cannot_read(self.source, error) from error

    def _plain(self, file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
        if start:
            file.seek(start)
        while chunk := file.read(size):
            self.consumed += len(chunk)
            yield chunk

    def _decoded(self, file: IO[bytes], compression: str) -> Iterator[bytes]:
        members = _Members(compression)
        feeds = delivered = 0
        try:
            while fed := file.read(_FEED_BYTES):
                for out in members.feed(fed):
                    delivered += len(out)
                    yield out
                feeds += 1
                self.consumed += len(fed)
            members.close()
        except _CorruptStream:
            if self.source.path != STDIN:
                yield from _rescue(file, compression, feeds, delivered)
            raise


def _rescue(file: IO[bytes], compression: str, feeds: int, delivered: int) -> Iterator[bytes]:
    """The bytes before the corrupt one: decodes again the feeds that were good, and byte by byte the one that was not."""
    file.seek(0)
    members = _Members(compression)
    with suppress(_CorruptStream):
        for size in chain(repeat(_FEED_BYTES, feeds), repeat(1, _FEED_BYTES)):
            for out in members.feed(file.read(size)):
                yield out[delivered:]
                delivered = max(delivered - len(out), 0)


class _Members:
    """Decodes members (frames, streams) one after the other."""

    def __init__(self, compression: str) -> None:
        self._new, self._errors = _codec(compression)
        self._compression = compression
        self._decoder: _Decoder | None = None  # None between two members

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decoder is None:
                data = data.lstrip(b"\0")  # padding between members; none of the formats starts with a zero
                if not data:
                    return
                self._decoder = self._new()
            try:
                yield from _decompress(self._decoder, data)
            except self._errors as error:
                raise _CorruptStream(f"corrupt {self._compression} data: {error}") from error
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data
                self._decoder = None

    def close(self) -> None:
        if self._decoder is not None:
            raise DamagedStream(f"the {self._compression} data ends in the middle: the file is truncated")


def _decompress(decoder: _Decoder, data: bytes) -> Iterator[bytes]:
    while True:
        if out := decoder.decompress(data, _MAX_OUTPUT_BYTES):
            yield out
        if decoder.eof or decoder.needs_input:
            return
        data = b""  # the decoder has kept what it could not decode within the limit


def _regroup(pieces: Iterator[bytes], skip: int, size: int) -> Iterator[bytes]:
    """Pieces of any length as chunks of `size`, without the first `skip` bytes. A failing source loses nothing."""
    waiting: list[memoryview] = []
    waiting_bytes = 0
    damage: DamagedStream | None = None
    try:
        for piece in pieces:
            rest = memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)
            while waiting_bytes + len(rest) >= size:
                taken = size - waiting_bytes
                yield b"".join([*waiting, rest[:taken]])
                waiting, waiting_bytes, rest = [], 0, rest[taken:]
            waiting.append(rest)
            waiting_bytes += len(rest)
    except DamagedStream as error:
        damage = error
    if waiting_bytes:
        yield b"".join(waiting)
    if damage is not None and not skip:
        raise damage
