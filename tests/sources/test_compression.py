"""A compressed file is its decompressed bytes: from any position, in any number of members, up to the first bad byte."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokpress.errors import InputError
from tokpress.records import Input
from tokpress.sources.compression import EXTENSIONS, ByteStream, DamagedStream
from tokpress.sources.opening import PeekableInput

from .reading import COMPRESSORS, PACKED, compress, write

LINES = b"".join(b"line %d of some text, %d\n" % (i, i * i) for i in range(3000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compression")


def stream_of(path: Path, data: bytes) -> ByteStream:
    write(path, data)
    source = Input(path=str(path), format="jsonl", compression=EXTENSIONS.get(path.suffix), size=len(data), mtime_ns=0)
    return ByteStream(source)


def until_damage(chunks: Iterator[bytes]) -> tuple[bytes, str | None]:
    """What is delivered, and what is said about the rest."""
    delivered = b""
    try:
        for chunk in chunks:
            delivered += chunk
    except DamagedStream as error:
        return delivered, str(error)
    return delivered, None


@pytest.mark.parametrize("extension", COMPRESSORS)
@settings(deadline=None, max_examples=40)
@given(
    data=st.binary(max_size=2000) | st.just(LINES),
    members=st.integers(1, 5),
    start=st.integers(0, 2500),
    size=st.integers(1, 3000),
)
def test_every_byte_from_any_start_in_chunks_of_the_asked_size(
    folder: Path, extension: str, data: bytes, members: int, start: int, size: int
) -> None:
    stream = stream_of(folder / f"data{extension}", compress(data, extension, members))
    chunks = list(stream.chunks(start, size))
    assert b"".join(chunks) == data[start:]
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(0 < len(chunk) <= size for chunk in chunks[-1:])


@pytest.mark.parametrize("extension", COMPRESSORS)
def test_counts_the_stored_bytes_it_consumes(folder: Path, extension: str) -> None:
    packed = compress(LINES, extension, members=3)
    stream = stream_of(folder / f"data{extension}", packed)
    consumed = [stream.consumed for _ in stream.chunks(0, 1000)]
    assert stream.consumed == len(packed)
    assert all(before <= after for before, after in pairwise(consumed))


@pytest.mark.parametrize("extension", PACKED)
class TestPaddingAndGarbage:
    def test_zeros_around_members_are_padding(self, folder: Path, extension: str) -> None:
        part = compress(LINES, extension)
        stream = stream_of(folder / f"data{extension}", part + bytes(512) + part + bytes(4096))
        assert until_damage(stream.chunks(0, 4096)) == (LINES + LINES, None)

    def test_garbage_after_the_last_member_is_damage(self, folder: Path, extension: str) -> None:
        stream = stream_of(folder / f"data{extension}", compress(LINES, extension) + b"garbage, and more of it")
        delivered, message = until_damage(stream.chunks(0, 4096))
        assert delivered == LINES
        assert message is not None

    def test_an_empty_file_is_empty(self, folder: Path, extension: str) -> None:
        assert until_damage(stream_of(folder / f"data{extension}", b"").chunks(0, 4096)) == (b"", None)


class TestGzip:
    def test_a_name_a_comment_and_extra_fields_in_the_header(self, folder: Path) -> None:
        body = zlib.compress(LINES, wbits=-15)
        header = b"\x1f\x8b\x08\x1c" + bytes(4) + b"\0\x03" + b"\x05\0extra" + b"name.jsonl\0" + b"a comment\0"
        trailer = zlib.crc32(LINES).to_bytes(4, "little") + len(LINES).to_bytes(4, "little")
        assert gzip.decompress(header + body + trailer) == LINES
        stream = stream_of(folder / "data.gz", header + body + trailer)
        assert until_damage(stream.chunks(0, 4096)) == (LINES, None)

    def test_a_wrong_checksum_loses_nothing_but_is_damage(self, folder: Path) -> None:
        packed = bytearray(gzip.compress(LINES))
        packed[-8] ^= 1
        delivered, message = until_damage(stream_of(folder / "data.gz", bytes(packed)).chunks(0, 4096))
        assert delivered == LINES
        assert message is not None
        assert "corrupt gz data" in message


class TestZstandard:
    def test_skippable_frames_are_skipped(self, folder: Path) -> None:
        skippable = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
        frame = compress(LINES, ".zst")
        stream = stream_of(folder / "data.zst", skippable + frame + skippable + frame + skippable)
        assert until_damage(stream.chunks(0, 4096)) == (LINES + LINES, None)

    def test_a_window_larger_than_the_default_limit(self, folder: Path) -> None:
        parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
        writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        packed = writer.compress(LINES) + writer.flush()
        assert zstandard.get_frame_parameters(packed).window_size == 2**28
        assert until_damage(stream_of(folder / "data.zst", packed).chunks(0, 4096)) == (LINES, None)


@pytest.mark.parametrize("extension", PACKED)
class TestDamage:
    def test_cut_anywhere_gives_what_stood_before_the_cut(self, folder: Path, extension: str) -> None:
        packed = compress(LINES, extension, members=4)
        ends = {len(compress(LINES[: len(LINES) // 4 * members], extension, members)) for members in range(1, 4)}
        cuts = sorted({*range(1, len(packed), 97), len(packed) - 1} - ends)
        previous = -1
        for cut in cuts:
            delivered, message = until_damage(stream_of(folder / f"data{extension}", packed[:cut]).chunks(0, 4096))
            assert LINES.startswith(delivered)
            assert message is not None
            assert "truncated" in message
            assert len(delivered) >= previous
            previous = len(delivered)
        assert previous >= len(LINES) * 3 // 4  # the first members at least, whatever the block size

    def test_a_wrong_byte_costs_no_more_than_the_codec_needs(self, folder: Path, extension: str) -> None:
        members = [compress(LINES, extension) for _ in range(3)]
        bad = bytearray(members[2])
        bad[len(bad) // 2] ^= 0xFF
        stream = stream_of(folder / f"data{extension}", members[0] + members[1] + bytes(bad))
        delivered, message = until_damage(stream.chunks(0, 4096))
        assert delivered[: 2 * len(LINES)] == LINES + LINES
        assert message is not None

    def test_deep_in_a_large_file_only_the_damaged_part_is_decoded_with_care(
        self, folder: Path, extension: str
    ) -> None:
        part = compress(LINES, extension)
        many = -(-20_000 // len(part))  # so that several feeds are good
        stream = stream_of(folder / f"data{extension}", part * many + b"not the start of a member")
        delivered, message = until_damage(stream.chunks(0, 1 << 20))
        assert delivered == LINES * many
        assert message is not None

    def test_reading_from_beyond_the_damage_finds_nothing(self, folder: Path, extension: str) -> None:
        stream = stream_of(folder / f"data{extension}", compress(LINES, extension)[:-1])
        delivered, _ = until_damage(stream.chunks(0, 4096))
        assert until_damage(stream.chunks(len(delivered) + 1, 4096)) == (b"", None)
        again, message = until_damage(stream.chunks(len(delivered), 4096))
        assert again == b""
        assert message is not None


@pytest.mark.parametrize("extension", [".gz", ".bz2", ".xz"])
def test_a_bomb_is_defused_chunk_by_chunk(folder: Path, extension: str) -> None:
    """A few kilobytes of bz2 can stand for gigabytes; no call may return them at once."""
    stream = stream_of(folder / f"bomb{extension}", compress(bytes(20_000_000), extension) * 50)
    tracemalloc.start()
    try:
        chunks = stream.chunks(0, 65536)
        for _ in range(200):
            assert next(chunks) == bytes(65536)
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_cannot_be_opened_is_an_error_that_names_it(folder: Path) -> None:
    stream = ByteStream(Input(path=str(folder / "gone.jsonl"), format="jsonl", size=1, mtime_ns=0))
    with pytest.raises(InputError, match=r"cannot read .*gone\.jsonl: No such file"):
        list(stream.chunks(0, 100))


class TestPeekableInput:
    @given(data=st.binary(max_size=200), peeks=st.lists(st.integers(0, 80), max_size=3), size=st.integers(1, 50))
    @example(data=bytes(100), peeks=[30], size=20)
    def test_peeking_takes_nothing_away(self, data: bytes, peeks: list[int], size: int) -> None:
        file = PeekableInput(io.BytesIO(data))
        for peek in peeks:
            assert file.peek(peek) == data[:peek]
        chunks = list(iter(lambda: file.read(size), b""))
        assert b"".join(chunks) == data
        assert all(len(chunk) == size for chunk in chunks[:-1])

    def test_cannot_start_in_the_middle(self) -> None:
        with pytest.raises(InputError, match="can only be read once"):
            PeekableInput(io.BytesIO(b"abc")).seek(2)
