"""Rows are what their ranges say, wherever those come from; and what is no range of a shard is not read."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from conftest import file_checksum
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress.loader.memory import gather
from tokpress.loader.memory.gather import GatherSource, Mapped, gather_rows
from tokpress.loader.memory.ranges import Ranges
from tokpress.records import FileEntry
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest, write_manifest

from .conftest import SEQ_LEN, build, make_texts

DTYPES = [np.uint8, np.uint16, np.uint32]
PADDING = 7


@dataclass(frozen=True)
class Piece:
    row: int
    column: int
    shard: int
    start: int
    length: int


def source(arrays: Sequence[npt.NDArray[Any] | None], pieces: Sequence[Piece]) -> GatherSource:
    columns = [
        np.array([getattr(piece, name) for piece in pieces], np.int64)
        for name in ("row", "column", "shard", "start", "length")
    ]
    mapped = [None if array is None else Mapped(array) for array in arrays]
    return GatherSource(Ranges(*columns), mapped.__getitem__)


def expected_rows(
    parts: Sequence[tuple[Sequence[npt.NDArray[Any] | None], Sequence[Piece]]], shape: tuple[int, int], dtype: Any
) -> npt.NDArray[Any]:
    rows = np.full(shape, PADDING, dtype)
    for arrays, pieces in parts:
        for piece in pieces:
            array = arrays[piece.shard]
            if array is not None:
                tokens = array[piece.start : piece.start + piece.length]
                rows[piece.row, piece.column : piece.column + piece.length] = tokens
    return rows


@st.composite
def requests(draw: st.DrawFn) -> tuple[Any, tuple[int, int], list[Any]]:
    """Ranges of up to three sources: none or several in a row, of any length, with and without gaps between them."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 60)))
    whole = draw(st.booleans())
    parts: list[tuple[list[npt.NDArray[Any] | None], list[Piece]]] = []
    for _ in range(draw(st.integers(1, 3))):
        sizes = random.integers(shape[1], shape[1] + 50, random.integers(1, 4))
        arrays: list[Any] = [random.integers(0, np.iinfo(dtype).max, n, dtype, endpoint=True) for n in sizes]
        if draw(st.booleans()):
            arrays[-1] = None
        parts.append((arrays, []))
    for row in range(shape[0]):
        arrays, pieces = parts[random.integers(len(parts))]
        column = 0
        while column < shape[1]:
            length = shape[1] if whole else int(random.integers(1, shape[1] - column + 1))
            shard = int(random.integers(len(arrays)))
            array = arrays[shard]
            start = 0 if array is None else int(random.integers(0, len(array) - length + 1))
            if whole or random.random() < 0.7:
                pieces.append(Piece(row, column, shard, start, length))
            column += length
    return dtype, shape, parts


@given(requests())
def test_any_ranges_of_any_sources(request: tuple[Any, tuple[int, int], list[Any]]) -> None:
    dtype, shape, parts = request
    rows = gather_rows([source(*part) for part in parts], shape, dtype, padding=PADDING)
    assert rows.dtype == dtype
    assert np.array_equal(rows, expected_rows(parts, shape, dtype))


@given(requests())
def test_arrays_and_ranges_longer_than_a_view_reaches(request: tuple[Any, tuple[int, int], list[Any]]) -> None:
    dtype, shape, parts = request
    make_views = gather._views
    lengths: list[npt.NDArray[Any]] = []

    def views(*arguments: Any) -> npt.NDArray[Any]:
        made = make_views(*arguments)
        lengths.append(made[:, 0])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "_BUFFER_BYTES", 16)
        patch.setattr(gather, "_views", views)
        rows = gather_rows([source(*part) for part in parts], shape, dtype, padding=PADDING)
    assert max(lengths[0]) <= 16
    assert np.array_equal(rows, expected_rows(parts, shape, dtype))


@given(requests(), st.integers(1, 3))
def test_more_shards_than_are_mapped_at_once(request: tuple[Any, tuple[int, int], list[Any]], most: int) -> None:
    dtype, shape, parts = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "_MOST_SHARDS", most)
        rows = gather_rows([source(*part) for part in parts], shape, dtype, padding=PADDING)
    assert np.array_equal(rows, expected_rows(parts, shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_memory_of_their_own(dtype: Any) -> None:
    ids = np.arange(100, dtype=dtype)
    ids.flags.writeable = False
    rows = gather_rows([source([ids], [Piece(0, 0, 0, 3, 20)])], (1, 20), np.dtype(dtype), padding=0)
    rows[...] = 1
    assert ids.tolist() == list(range(100))


class TestWhatIsNoRangeOfAShard:
    """The array lies in the middle of another one: what is before and behind it can be read, but is not its own."""

    around = np.arange(1000, dtype=np.uint32)

    @pytest.mark.parametrize(("start", "length"), [(-1, 8), (-8, 8), (93, 8), (100, 8), (10**12, 8), (0, 101)])
    def test_is_an_index_error(self, start: int, length: int) -> None:
        shard = self.around[100:200]
        pieces = [Piece(0, 0, 0, 0, length), Piece(1, 0, 0, start, length)]
        with pytest.raises(IndexError, match="outside its shard"):
            gather_rows([source([shard], pieces)], (2, length), shard.dtype, padding=0)

    @pytest.mark.parametrize("pieces", [[Piece(0, 0, 0, 0, 8), Piece(0, 4, 0, 0, 8)], [Piece(0, 4, 0, 0, 8)]])
    def test_nor_is_what_does_not_fit_into_its_rows(self, pieces: list[Piece]) -> None:
        with pytest.raises(IndexError, match="overlap, or lie outside their rows"):
            gather_rows([source([self.around], pieces)], (1, 8), self.around.dtype, padding=0)

    @pytest.mark.parametrize("method", ["batch", "__getitems__"])
    @pytest.mark.parametrize("wrong", [-(10**6), 10**6])
    def test_through_a_dataset(self, data: tokpress.PretokenizedDataset, method: str, wrong: int) -> None:
        with pytest.raises(IndexError, match=f"sequence {wrong} is outside"):
            getattr(data, method)([0, wrong])


def widened(store: tokpress.Store, directory: Path) -> tokpress.Store:
    """The same tokens in 32 bits, as a larger vocabulary would need them."""
    shutil.copytree(store.path, directory)
    manifest = read_manifest(LocalStorage(directory))
    split = manifest.splits["train"]
    shards = []
    for receipt in split.shards:
        path = directory / receipt.path("bin")
        path.write_bytes(np.frombuffer(path.read_bytes(), np.uint16).astype(np.uint32).tobytes())
        entry = FileEntry(path.stat().st_size, file_checksum(path))
        shards.append(msgspec.structs.replace(receipt, files=receipt.files | {"bin": entry}))
    splits = manifest.splits | {"train": msgspec.structs.replace(split, shards=shards)}
    write_manifest(LocalStorage(directory), msgspec.structs.replace(manifest, dtype="uint32", splits=splits))
    return tokpress.open(directory)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_sources_whose_ids_have_unequal_widths(
    store: tokpress.Store, other_store: tokpress.Store, tmp_path: Path, dtype: Any
) -> None:
    options: dict[str, Any] = {"seq_len": SEQ_LEN, "dtype": dtype, "output": "numpy", "method": "pad"}
    web = tokpress.PretokenizedDataset(store, **options)
    runs = []
    for code in (other_store, widened(other_store, tmp_path / "wide")):
        both = {"web": web, "code": tokpress.PretokenizedDataset(code, **options)}
        batches = islice(tokpress.Loader(both, batch_size=6), 9)
        runs.append([{name: array.tolist() for name, array in batch.items()} for batch in batches])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("pad_id", [-1, 70_000])
@pytest.mark.parametrize("shift_labels", [False, True])
def test_padding_that_the_stored_width_cannot_hold(
    store: tokpress.Store, dtype: Any, pad_id: int, shift_labels: bool
) -> None:
    options: dict[str, Any] = {"seq_len": SEQ_LEN, "method": "pad", "output": "numpy", "shift_labels": shift_labels}
    batches = [
        tokpress.PretokenizedDataset(store, pad_id=pad, dtype=dtype, **options).batch(range(20))
        for pad in (300, pad_id)  # no token of this store is 300
    ]
    assert (batches[0]["input_ids"] == 300).any()
    assert np.array_equal(
        np.where(batches[0]["input_ids"] == 300, pad_id, batches[0]["input_ids"]), batches[1]["input_ids"]
    )
    assert np.array_equal(batches[0]["labels"], batches[1]["labels"])


def test_no_thread_is_started_that_is_not_the_loaders_own(tmp_path: Path) -> None:
    """Torch has two threads here, which it starts for work of this size."""
    store = build(tmp_path, [text * 400 for text in make_texts(200, 1)])
    code = (
        "import math, os, torch, tokpress\n"
        "torch.set_num_threads(2)\n"
        f"data = tokpress.PretokenizedDataset({str(store.path)!r}, seq_len=1024, output='torch')\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "batches = iter(tokpress.Loader(data, batch_size=64, max_epochs=math.inf, threads=0))\n"
        "for _ in range(30): assert next(batches)['labels'].numel() == 65536\n"
        "assert len(os.listdir('/proc/self/task')) == before, 'threads were started'\n"
        "torch.ones(2**20).add_(1)\n"
        "assert len(os.listdir('/proc/self/task')) > before, 'this test sees nothing'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_fork_goes_on_loading(data: tokpress.PretokenizedDataset) -> None:
    def first_rows() -> list[Any]:
        loader = tokpress.Loader(data, batch_size=8, max_epochs=math.inf, threads=1)
        return [batch["input_ids"].tolist() for batch in islice(loader, 5)]

    expected = first_rows()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if first_rows() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
