"""Documents become shards whose bounds depend on the documents alone."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import TokenBatch
from tokpress.store.durable import file_checksum
from tokpress.store.manifest import Counts, FileEntry, Receipt, read_record
from tokpress.store.writer import ShardWriter

NO_RECORDS = Counts()


def batch(*docs: list[int], dtype: str = "<u2") -> TokenBatch:
    ids = np.array([token for doc in docs for token in doc], dtype)
    return TokenBatch(ids, np.cumsum([len(doc) for doc in docs], dtype=np.int64))


def writer(directory: Path, shard_bytes: int = 1000, unit: int = 3) -> ShardWriter:
    return ShardWriter(directory, split="train", unit=unit, shard_bytes=shard_bytes)


def append(to: ShardWriter, tokens: TokenBatch, *, first: int = 0, source: int = 0) -> None:
    docs = len(tokens)
    to.append(tokens, np.arange(first, first + docs, dtype=np.int64), np.full(docs, source, np.int32))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestShard:
    def test_is_three_files_and_a_receipt(self, tmp_path: Path) -> None:
        shards = writer(tmp_path)
        append(shards, batch([1, 2, 3], [], [4]), first=10, source=7)
        receipt = shards.close_shard(Counts(read=5, written=3, rejected=2), 7, 99)
        shards.finish()
        assert names(tmp_path) == [f"train-00003-000.{extension}" for extension in ("bin", "ends", "json", "pos")]
        assert np.fromfile(tmp_path / "train-00003-000.bin", "<u2").tolist() == [1, 2, 3, 4]
        assert np.fromfile(tmp_path / "train-00003-000.ends", "<i8").tolist() == [3, 3, 4]
        assert np.fromfile(tmp_path / "train-00003-000.pos", "<i8").tolist() == [10, 11, 12]
        assert read_record(tmp_path / "train-00003-000.json", Receipt) == receipt
        assert receipt == Receipt(
            split="train",
            unit=3,
            number=0,
            docs=3,
            tokens=4,
            max_id=4,
            files={
                extension: FileEntry(size, file_checksum(tmp_path / f"train-00003-000.{extension}"))
                for extension, size in (("bin", 8), ("ends", 24), ("pos", 24))
            },
            sources=[(7, 3)],
            counts=Counts(read=5, written=3, rejected=2),
            next_input=7,
            next_position=99,
        )

    def test_may_be_empty(self, tmp_path: Path) -> None:
        shards = writer(tmp_path)
        append(shards, batch())
        receipt = shards.close_shard(Counts(read=2, rejected=2), None, None)
        shards.finish()
        assert (receipt.docs, receipt.tokens, receipt.max_id, receipt.sources) == (0, 0, -1, [])
        assert [(tmp_path / f"train-00003-000.{name}").stat().st_size for name in ("bin", "ends", "pos")] == [0, 0, 0]

    def test_may_hold_nothing_but_empty_documents(self, tmp_path: Path) -> None:
        shards = writer(tmp_path)
        append(shards, batch([], []))
        receipt = shards.close_shard(NO_RECORDS, None, None)
        shards.finish()
        assert (receipt.docs, receipt.tokens, receipt.max_id) == (2, 0, -1)

    def test_ends_go_on_from_batch_to_batch_and_begin_anew_in_the_next_shard(self, tmp_path: Path) -> None:
        shards = writer(tmp_path)
        append(shards, batch([1, 1]))
        append(shards, batch([1], [1, 1]))
        shards.close_shard(NO_RECORDS, 0, 0)
        append(shards, batch([1, 1, 1]))
        shards.close_shard(NO_RECORDS, None, None)
        shards.finish()
        assert np.fromfile(tmp_path / "train-00003-000.ends", "<i8").tolist() == [2, 3, 5]
        assert np.fromfile(tmp_path / "train-00003-001.ends", "<i8").tolist() == [3]

    @given(st.lists(st.lists(st.integers(0, 3), min_size=1), min_size=1))
    def test_its_sources_are_runs_whatever_the_batches(self, batches: list[list[int]]) -> None:
        shards = writer(Path("/nowhere"))
        for sources in batches:
            shards._count_sources(np.array(sources, np.int32))
        flat = [source for sources in batches for source in sources]
        assert [source for source, docs in shards._sources for _ in range(docs)] == flat
        assert all(a[0] != b[0] for a, b in zip(shards._sources, shards._sources[1:], strict=False))


class TestBounds:
    @given(
        lengths=st.lists(st.integers(0, 12), min_size=1, max_size=60),
        shard_bytes=st.integers(1, 40),
        dtype=st.sampled_from(["<u2", "<u4"]),
    )
    def test_a_shard_takes_documents_up_to_the_one_that_fills_it(
        self, lengths: list[int], shard_bytes: int, dtype: str
    ) -> None:
        shards = writer(Path("/nowhere"), shard_bytes)
        tokens = batch(*([1] * length for length in lengths), dtype=dtype)
        filled = enumerate(accumulate(length * tokens.ids.itemsize for length in lengths), start=1)
        assert shards.docs_that_fit(tokens) == next(
            (docs for docs, size in filled if size >= shard_bytes), len(lengths)
        )

    @pytest.mark.parametrize(("shard_bytes", "full"), [(1, True), (5, True), (6, True), (7, False)])
    def test_is_full_from_so_many_bytes_on(self, tmp_path: Path, shard_bytes: int, full: bool) -> None:
        shards = writer(tmp_path, shard_bytes)
        assert not shards.is_full
        append(shards, batch([1, 2, 3]))
        assert shards.is_full == full
        shards.abort()

    def test_what_was_written_counts(self, tmp_path: Path) -> None:
        shards = writer(tmp_path, shard_bytes=10)
        append(shards, batch([1, 2, 3]))
        assert shards.docs_that_fit(batch([1], [1], [1])) == 2
        shards.abort()


class TestFailure:
    def test_aborting_leaves_finished_shards_and_nothing_else(self, tmp_path: Path) -> None:
        shards = writer(tmp_path)
        append(shards, batch([1]))
        shards.close_shard(NO_RECORDS, 0, 0)
        append(shards, batch([2]))
        shards.abort()
        assert names(tmp_path) == [f"train-00003-000.{extension}" for extension in ("bin", "ends", "json", "pos")]

    def test_a_shard_that_cannot_be_synced_does_not_exist(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shards = writer(tmp_path)
        append(shards, batch([1]))

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        shards.close_shard(NO_RECORDS, 0, 0)
        append(shards, batch([2]))
        with pytest.raises(OSError, match="No space left"):
            shards.close_shard(NO_RECORDS, None, None)
        shards.abort()
        assert names(tmp_path) == []

    def test_the_last_shard_s_failure_is_not_lost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shards = writer(tmp_path)

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        shards.close_shard(NO_RECORDS, None, None)
        with pytest.raises(OSError, match="No space left"):
            shards.finish()
        shards.abort()
        assert names(tmp_path) == []

    def test_files_that_cannot_be_opened_leave_none(self, tmp_path: Path) -> None:
        (tmp_path / "train-00003-000.pos.tmp").mkdir()
        shards = writer(tmp_path)
        with pytest.raises(IsADirectoryError):
            append(shards, batch([1]))
        shards.abort()
        assert names(tmp_path) == ["train-00003-000.pos.tmp"]

    def test_a_receipt_comes_last(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            seen.append(names(tmp_path))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        shards = writer(tmp_path)
        append(shards, batch([1]))
        shards.close_shard(NO_RECORDS, None, None)
        shards.finish()
        with_receipt = [listing for listing in seen if any(name.endswith("json") for name in listing)]
        assert with_receipt == [names(tmp_path)]  # only the very last sync, of the directory
