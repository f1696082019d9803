"""A stream is cut into lines: each once, whole and in order, however the file is cut into ranges and these into chunks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokpress.batches import PREVIEW_BYTES
from tokpress.records import Input
from tokpress.sources.blocks import Block, Damage, Oversized
from tokpress.sources.compression import ByteStream
from tokpress.sources.lines import read_lines

from .reading import BOM, compress, write

NO_LIMIT = 10**9


@dataclass(frozen=True)
class Line:
    position: int
    content: bytes | None  # None: too long
    stored_bytes: int


def lines_by_hand(data: bytes, max_bytes: int = NO_LIMIT) -> list[Line]:
    """What a file's lines are, in the plainest words."""
    lines = []
    position = 0
    for stored in io.BytesIO(data):
        content = stored.removeprefix(BOM) if position == 0 else stored
        if content.endswith(b"\n"):
            content = content[:-1].removesuffix(b"\r")
        if stored != BOM or position:
            lines.append(Line(position, content if len(content) <= max_bytes else None, len(stored)))
        position += len(stored)
    return lines


def lines_of(pieces: Iterable[Block | Oversized | Damage], max_bytes: int) -> list[Line]:
    """The same from what `read_lines` gives: a reader treats a line over the limit in a block as one passed over."""
    lines = []
    for piece in pieces:
        assert not isinstance(piece, Damage)
        if isinstance(piece, Oversized):
            assert len(piece.head) == min(piece.size, PREVIEW_BYTES)
            lines.append(Line(piece.offset, None, piece.size))
            continue
        for i, position in enumerate(piece.positions.tolist()):
            content: bytes = piece.data[piece.starts[i] : piece.ends[i]]
            stored = piece.oversized(i)
            assert stored.head == piece.data[position - piece.offset :][: stored.size][:PREVIEW_BYTES]
            lines.append(Line(stored.offset, content if len(content) <= max_bytes else None, stored.size))
    return lines


def stream_of(path: Path, data: bytes, compression: str | None = None) -> ByteStream:
    return ByteStream(
        Input(path=str(write(path, data)), format="lines", compression=compression, size=len(data), mtime_ns=0)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


files = st.builds(
    lambda mark, parts: mark + b"".join(parts),
    st.sampled_from([b"", BOM]),
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", BOM, b"\xef", b"longer line"]), max_size=30),
)
limits = st.sampled_from([0, 1, 3, 8, NO_LIMIT])


@settings(deadline=None, max_examples=400)
@given(data=files, cuts=st.lists(st.integers(0, 60), max_size=5), chunk_bytes=st.integers(1, 70), max_bytes=limits)
@example(data=BOM + b"first\nsecond", cuts=[1, 2, 3, 4], chunk_bytes=4, max_bytes=NO_LIMIT)
@example(data=b"a\r\nb\r", cuts=[2, 3], chunk_bytes=1, max_bytes=NO_LIMIT)
@example(data=b"x" * 50 + b"\ny", cuts=[10, 20, 30], chunk_bytes=7, max_bytes=8)
def test_ranges_that_touch_share_no_line_and_lose_none(
    folder: Path, data: bytes, cuts: Sequence[int], chunk_bytes: int, max_bytes: int
) -> None:
    stream = stream_of(folder / "ranges", data)
    bounds = [0, *sorted(cuts)]
    found = []
    for start, stop in zip(bounds, [*bounds[1:], None], strict=True):
        part = lines_of(read_lines(stream, start, stop, chunk_bytes, max_bytes), max_bytes)
        assert all(start <= line.position and (stop is None or line.position < stop) for line in part)
        found += part
    assert found == lines_by_hand(data, max_bytes)


@settings(deadline=None, max_examples=150)
@given(data=files, chunk_bytes=st.integers(1, 70), max_bytes=limits)
def test_reading_goes_on_from_every_line_and_from_the_end_of_every_piece(
    folder: Path, data: bytes, chunk_bytes: int, max_bytes: int
) -> None:
    stream = stream_of(folder / "restart", data)
    pieces = list(read_lines(stream, 0, None, chunk_bytes, max_bytes))
    lines = lines_of(pieces, max_bytes)
    places = [line.position for line in lines] + [line.position + line.stored_bytes for line in lines]
    for place in places:
        rest = lines_of(read_lines(stream, place, None, chunk_bytes, max_bytes), max_bytes)
        assert rest == [line for line in lines if line.position >= place]


def test_a_range_inside_one_line_does_not_read_to_the_end_of_it(folder: Path) -> None:
    stream = stream_of(folder / "long", b"x" * 1_000_000 + b"\ny\n")
    assert list(read_lines(stream, 1000, 2000, 100, NO_LIMIT)) == []
    assert stream.consumed < 2000


def test_a_long_line_is_passed_over_without_being_held(folder: Path) -> None:
    stream = stream_of(folder / "long", b"ok\n" + b"0123456789" * 1000 + b"\nfine")
    short, long, last = read_lines(stream, 0, None, 64, 100)
    assert isinstance(short, Block)
    assert short.data == b"ok\n"
    assert long == Oversized(3, 10_001, (b"0123456789" * 8)[:PREVIEW_BYTES])
    assert isinstance(last, Block)
    assert last.data == b"fine"


@pytest.mark.parametrize("keep", ["whole lines", "half a line", "half a line that is too long"])
def test_damage_is_told_once_with_what_there_is_of_the_line(folder: Path, keep: str) -> None:
    tail = {"whole lines": b"", "half a line": b"half", "half a line that is too long": b"h" * 500}[keep]
    good = b"first\nsecond\n"
    packed = compress(good + tail, ".gz")[:-3]  # all the data, but not the end of the checksum
    stream = stream_of(folder / "damaged", packed, "gz")
    *blocks, damage = read_lines(stream, 0, None, 64, 100)
    assert [line.content for line in lines_of(blocks, 100)] == [b"first", b"second"]
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.size, damage.head) == (len(good), len(tail), tail[:PREVIEW_BYTES])
    assert list(read_lines(stream, len(good), None, 64, 100)) == [damage]
    assert list(read_lines(stream, len(good) + len(tail) + 1, None, 64, 100)) == []
    assert not any(isinstance(piece, Damage) for piece in read_lines(stream, 0, len(good), 64, 100))
