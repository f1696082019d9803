"""A shard's files as every reader gets them: damage is named before a bound of it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokpress
from tokpress.errors import StoreError
from tokpress.store import shard as shard_module

ENDS: dict[str, Callable[[Any], Any]] = {
    "negative": lambda ends: [-1, *ends[1:]],
    "behind the tokens": lambda ends: [*ends[:-1], 2**40],
    "before the last token": lambda ends: [*ends[:-1], 0],
    "falling": lambda ends: [ends[-1], *ends[1:]],
    "the largest number": lambda ends: [2**63 - 1, *ends[1:]],
    "shifted": lambda ends: [end - 1 for end in ends],
}


def with_ends(store: Path, change: Callable[[Any], Any]) -> Path:
    path = store / "shards" / "train-00000-000.ends"
    path.write_bytes(np.array(change(np.fromfile(path, "<i8").tolist()), "<i8").tobytes())
    return path


READS: dict[str, Callable[[tokpress.Store], object]] = {
    "doc": lambda store: store.doc(0),
    "iter": list,
    "doc_lengths": lambda store: store.doc_lengths(),
    "spans": lambda store: store.spans(np.array([0])),
    "end_blocks": lambda store: list(store.end_blocks(2)),
    "text": lambda store: store.text(0),
    "summary": lambda store: store.summary(),
    "documents": lambda store: tokpress.PretokenizedDataset(store, seq_len=4, fields=["doc_ids"]).batch([0]),
    "pad": lambda store: tokpress.PretokenizedDataset(store, seq_len=4, method="pad").batch([0]),
    "bestfit": lambda store: tokpress.pack(store.path, seq_len=4, method="bestfit"),
}


EXPORTS = {  # those that read ends: raw ids, and sequences cut from them, need none
    "megatron": [],
    "datatrove": [],
    "dolma": [],
    "llmc": [],
    "npy": ["--max-length", "4"],
    "parquet": [],
    "arrow": [],
    "pt": ["--seq-len", "4", "--method", "pad"],
    "mds": [],
}

SHRINKING = """
import os, sys
import tokpress
from tokpress.store import shard
shard.LOOK_SECONDS = 0.0
data = tokpress.PretokenizedDataset(sys.argv[1], seq_len=4, output="numpy")
data.batch([0])
for shard in range(data.store.shard_doc_ends.size):
    data.stream.shard(shard)
for receipt in data.store.manifest.splits["train"].shards:
    os.truncate(data.store.path / receipt.path("bin"), receipt.files["bin"].bytes // 2)  # of less than a page
data.batch([0])
"""

MANY_MAPS = """
import ctypes, mmap, sys
import tokpress
store = tokpress.open(sys.argv[1])
limit = int(open("/proc/sys/vm/max_map_count").read())
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
pages = mmap.mmap(-1, 2 * limit * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # reserves nothing
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
for page in range(0, 2 * limit, 2):  # each other page otherwise protected: a map for each
    if libc.mprotect(address + page * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ):
        break
store.doc(0)
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


class TestEnds:
    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize("damage", ENDS)
    def test_that_do_not_rise_are_an_error_for_every_reader(self, store_copy: Path, damage: str, read: str) -> None:
        path = with_ends(store_copy, ENDS[damage])
        with pytest.raises(StoreError, match=rf"{path} is damaged: .* do not rise.*tokpress verify {store_copy}"):
            READS[read](tokpress.open(store_copy))

    @pytest.mark.parametrize("to", EXPORTS)
    def test_every_export_refuses_them(self, store_copy: Path, tmp_path: Path, to: str) -> None:
        """In a process of its own: Arrow follows such ends out of its memory."""
        path = with_ends(store_copy, ENDS["falling"])
        done = run("-m", "tokpress", "export", store_copy, "--to", to, "--out", tmp_path / "out", *EXPORTS[to])
        assert (done.returncode, f"{path} is damaged" in done.stderr) == (1, True), done.stderr
        assert not (tmp_path / "out").exists()


class TestSize:
    """Memory behind the end of a mapped file is a signal that ends the process."""

    @pytest.fixture(autouse=True)
    def look_always(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shard_module, "LOOK_SECONDS", 0.0)

    @pytest.mark.parametrize("extension", ["bin", "ends", "pos"])
    def test_a_file_that_becomes_shorter_is_named(self, store_copy: Path, extension: str) -> None:
        store = tokpress.open(store_copy)
        shard = store.shard(0)
        assert all(len(array) for array in (shard.ids, shard.ends, shard.positions))  # mapped as they are looked at
        path = store_copy / "shards" / f"train-00000-000.{extension}"
        os.truncate(path, 1)
        with pytest.raises(StoreError, match=rf"{path} has become shorter .* 1 bytes .*tokpress verify {store_copy}"):
            shard.look_again()
        with pytest.raises(StoreError, match="has become shorter"):
            store.doc(0)

    def test_one_that_was_removed_or_replaced_is_still_whole(self, store_copy: Path) -> None:
        store = tokpress.open(store_copy)
        first = store.doc(0).tolist()
        path = store_copy / "shards" / "train-00000-000.bin"
        path.unlink()
        assert store.doc(0).tolist() == first

    def test_it_is_looked_at_now_and_then_only(self, store_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        looks: list[str] = []

        def look(path: str) -> int:
            looks.append(path)
            return 2**40

        monkeypatch.setattr(shard_module, "current_size", look)
        monkeypatch.setattr(shard_module, "LOOK_SECONDS", 3600.0)
        store = tokpress.open(store_copy)
        for _ in range(10):
            store.doc(0)
        assert not looks

    def test_a_loader_says_so_and_does_not_die(self, store_copy: Path) -> None:
        done = run("-c", SHRINKING, store_copy)
        assert done.returncode == 1, done.stderr
        assert "has become shorter while it is read" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_too_many_maps_are_said_as_such(store_copy: Path) -> None:
    done = run("-c", MANY_MAPS, store_copy)
    last = done.stderr.splitlines()[-1]
    assert "as many maps as the system allows" in last, done.stderr
    assert "vm.max_map_count" in last
