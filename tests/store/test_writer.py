"""Documents and rejects become shards whose bounds depend on the documents alone."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import file_checksum
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import DocumentBatch, TokenBatch
from tokpress.records import BAD_JSON, REJECTS, SHARDS, TOO_LARGE, Counts, FileEntry, Receipt, Reject
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_record
from tokpress.store.writer import ShardWriter, count_sources, write_batch

FILES_OF_THE_FIRST = [f"train-00003-000.{extension}" for extension in ("bin", "ends", "json", "pos")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store's directories, empty."""
    (tmp_path / SHARDS).mkdir()
    (tmp_path / REJECTS).mkdir()
    return tmp_path


def batch(*docs: list[int], dtype: str = "<u2") -> TokenBatch:
    ids = np.array([token for doc in docs for token in doc], dtype)
    return TokenBatch(ids, np.cumsum([len(doc) for doc in docs], dtype=np.int64))


def writer(store: Path, shard_bytes: int = 1000, unit: int = 3, first_shard: int = 0) -> ShardWriter:
    return ShardWriter(LocalStorage(store), unit=unit, shard_bytes=shard_bytes, first_shard=first_shard)


def append(to: ShardWriter, tokens: TokenBatch, *, first: int = 0, source: int = 0, audited: int = 0) -> None:
    docs = len(tokens)
    to.append(replace(documents(tokens, first, source), audited=np.arange(docs) < audited))


def documents(tokens: TokenBatch, first: int = 0, source: int = 0) -> DocumentBatch:
    docs = len(tokens)
    positions, sources = np.arange(first, first + docs, dtype=np.int64), np.full(docs, source, np.int32)
    return DocumentBatch(tokens=tokens, positions=positions, sources=sources)


def reject(position: int, reason: str = BAD_JSON, records: int = 1) -> Reject:
    return Reject(source="a.jsonl", input=0, position=position, reason=reason, detail="bad", records=records)


def replace_input(of: Reject, number: int) -> Reject:
    return msgspec.structs.replace(of, input=number)


def names(store: Path, folder: str = SHARDS) -> list[str]:
    return sorted(path.name for path in (store / folder).iterdir())


def read(store: Path, name: str, dtype: str) -> list[int]:
    numbers: list[int] = np.fromfile(store / SHARDS / name, dtype).tolist()
    return numbers


class TestShard:
    def test_is_three_files_and_a_receipt(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch([1, 2, 3], [], [4]), first=10, source=7, audited=2)
        receipt = shards.close_shard((7, 99))
        shards.finish()
        assert names(store) == FILES_OF_THE_FIRST
        assert read(store, "train-00003-000.bin", "<u2") == [1, 2, 3, 4]
        assert read(store, "train-00003-000.ends", "<i8") == [3, 3, 4]
        assert read(store, "train-00003-000.pos", "<i8") == [10, 11, 12]
        assert read_record(LocalStorage(store), f"{SHARDS}/train-00003-000.json", Receipt) == receipt
        assert receipt == Receipt(
            split="train",
            unit=3,
            number=0,
            docs=3,
            tokens=4,
            max_id=4,
            files={
                extension: FileEntry(size, file_checksum(store / SHARDS / f"train-00003-000.{extension}"))
                for extension, size in (("bin", 8), ("ends", 24), ("pos", 24))
            },
            sources=[(7, 3)],
            counts=Counts(read=3, written=3, rejected=0),
            rejects={},
            audited=2,
            next_input=7,
            next_position=99,
        )

    def test_may_be_empty(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch())
        receipt = shards.close_shard(None)
        shards.finish()
        assert (receipt.docs, receipt.tokens, receipt.max_id, receipt.sources) == (0, 0, -1, [])
        assert (receipt.next_input, receipt.next_position) == (None, None)
        sizes = [(store / SHARDS / f"train-00003-000.{name}").stat().st_size for name in ("bin", "ends", "pos")]
        assert sizes == [0, 0, 0]

    def test_may_hold_nothing_but_empty_documents(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch([], []))
        receipt = shards.close_shard(None)
        shards.finish()
        assert (receipt.docs, receipt.tokens, receipt.max_id) == (2, 0, -1)

    def test_ends_go_on_from_batch_to_batch_and_begin_anew_in_the_next_shard(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch([1, 1]), audited=1)
        append(shards, batch([1], [1, 1]), audited=2)
        first = shards.close_shard((0, 0))
        append(shards, batch([1, 1, 1]), audited=1)
        second = shards.close_shard(None)
        shards.finish()
        assert read(store, "train-00003-000.ends", "<i8") == [2, 3, 5]
        assert read(store, "train-00003-001.ends", "<i8") == [3]
        assert (first.docs, first.audited, second.docs, second.audited) == (3, 3, 1, 1)

    @pytest.mark.parametrize("batches", [([9, 1], [2]), ([2], [9, 1]), ([9], [])])
    def test_its_largest_id_is_that_of_all_batches(self, store: Path, batches: tuple[list[int], ...]) -> None:
        shards = writer(store)
        for ids in batches:
            append(shards, batch(ids))
        receipt = shards.close_shard(None)
        shards.finish()
        assert receipt.max_id == 9

    def test_goes_on_with_the_number_it_is_told(self, store: Path) -> None:
        shards = writer(store, first_shard=12)
        receipts = [shards.close_shard((0, 0)), shards.close_shard(None)]
        shards.finish()
        assert [receipt.name for receipt in receipts] == ["train-00003-012", "train-00003-013"]

    @given(st.lists(st.lists(st.integers(0, 3), min_size=1), min_size=1))
    def test_its_sources_are_runs_whatever_the_batches(self, batches: list[list[int]]) -> None:
        runs: list[tuple[int, int]] = []
        for sources in batches:
            count_sources(runs, np.array(sources, np.int32))
        flat = [source for sources in batches for source in sources]
        assert [source for source, docs in runs for _ in range(docs)] == flat
        assert all(a[0] != b[0] for a, b in pairwise(runs))


class TestSplits:
    def test_each_has_a_shard_and_all_end_together(self, store: Path) -> None:
        shards = ShardWriter(LocalStorage(store), unit=3, shard_bytes=12, splits=["train", "val", "test"], masks=True)
        docs = documents(batch([1, 2], [3], [4, 5, 6], [7]))
        mask = np.array([0, 1, 1, 0, 0, 1, 1], np.uint8)
        docs = replace(docs, splits=np.array([0, 2, 0, 2], np.int32), mask=mask)
        assert shards.docs_that_fit(docs) == 3  # as if there were no splits
        shards.append(docs.part(0, 3))
        assert shards.is_full
        shards.reject([reject(9)])
        first = shards.close_shard((0, 3))
        shards.append(docs.part(3, 4))
        second = shards.close_shard(None)
        shards.finish()
        assert first.beside == second.beside == ("test",)
        assert [name for name in names(store) if name.endswith("json")] == [
            *("test-00003-000.json", "test-00003-001.json", "train-00003-000.json", "train-00003-001.json"),
        ]
        assert read(store, "train-00003-000.bin", "<u2") == [1, 2, 4, 5, 6]
        assert read(store, "train-00003-000.mask", "u1") == [0, 1, 0, 0, 1]
        assert read(store, "test-00003-000.bin", "<u2") == [3]
        assert read(store, "test-00003-001.pos", "<i8") == [3]
        test = read_record(LocalStorage(store), f"{SHARDS}/test-00003-000.json", Receipt)
        assert (test.counts, first.counts) == (Counts(read=1, written=1), Counts(read=3, written=2, rejected=1))
        assert (test.loss_tokens, first.loss_tokens, second.docs, test.next_position) == (1, 2, 0, 3)

    def test_the_receipt_of_train_is_written_last(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where it is, the others are."""
        written: list[str] = []
        storage = LocalStorage(store)
        monkeypatch.setattr(storage, "put", lambda key, data: written.append(key))
        shards = ShardWriter(storage, unit=0, shard_bytes=100, splits=["train", "val"])
        shards.append(replace(documents(batch([1], [2])), splits=np.array([0, 1], np.int32)))
        shards.close_shard(None)
        shards.finish()
        assert written == ["shards/val-00000-000.json", "shards/train-00000-000.json"]

    def test_a_split_record_is_not_torn_apart(self, store: Path) -> None:
        shards = writer(store, shard_bytes=4)
        docs = documents(batch([1, 1], [1, 1], [1, 1], [2]))
        docs = replace(docs, continued=np.array([False, True, True, False]))
        assert shards.docs_that_fit(docs) == 3
        shards.append(docs.part(0, 3))
        receipt = shards.close_shard(None)
        shards.finish()
        assert (receipt.docs, receipt.continued, receipt.counts.written) == (3, 2, 1)


class TestRejects:
    def test_are_listed_and_counted_with_the_shard_they_were_met_on_the_way_to(self, store: Path) -> None:
        shards = writer(store)
        shards.reject([reject(1), reject(2, TOO_LARGE)])
        append(shards, batch([1]))
        shards.reject([reject(3, TOO_LARGE, records=5)])
        first = shards.close_shard((0, 4))
        shards.reject([reject(5)])
        second = shards.close_shard(None)
        shards.finish()
        assert first.counts == Counts(read=8, written=1, rejected=7)
        assert first.rejects == {BAD_JSON: 1, TOO_LARGE: 6}
        assert (second.counts, second.rejects) == (Counts(read=1, written=0, rejected=1), {BAD_JSON: 1})
        assert names(store, REJECTS) == ["00003-000.jsonl", "00003-001.jsonl"]
        listed = (store / REJECTS / "00003-000.jsonl").read_bytes().splitlines()
        assert [msgspec.json.decode(line, type=Reject).position for line in listed] == [1, 2, 3]

    def test_those_of_an_earlier_input_come_first_wherever_they_stand_in_it(self, store: Path) -> None:
        """A unit may be several small files: a position says nothing without its file."""
        to = writer(store, shard_bytes=4)
        docs = documents(batch([1, 2], [3, 4]))
        docs = replace(docs, sources=np.array([0, 1], np.int32), positions=np.array([5, 5], np.int64))
        late = replace_input(reject(9), 0), replace_input(reject(2), 1), replace_input(reject(8), 1)
        write_batch(to, docs, list(late))
        to.close_shard(None)
        to.finish()
        receipts = [read_record(LocalStorage(store), f"{SHARDS}/train-00003-{i:03}.json", Receipt) for i in range(2)]
        assert [receipt.rejects for receipt in receipts] == [{BAD_JSON: 2}, {BAD_JSON: 1}]

    def test_without_any_there_is_no_file(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch([1]))
        shards.reject([])
        assert shards.close_shard(None).rejects == {}
        shards.finish()
        assert names(store, REJECTS) == []

    def test_do_not_fill_a_shard(self, store: Path) -> None:
        shards = writer(store, shard_bytes=1)
        shards.reject([reject(i) for i in range(1000)])
        assert not shards.is_full
        shards.abort()


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
        assert shards.docs_that_fit(documents(tokens)) == next(
            (docs for docs, size in filled if size >= shard_bytes), len(lengths)
        )

    @pytest.mark.parametrize(("shard_bytes", "full"), [(1, True), (5, True), (6, True), (7, False)])
    def test_is_full_from_so_many_bytes_on(self, store: Path, shard_bytes: int, full: bool) -> None:
        shards = writer(store, shard_bytes)
        assert not shards.is_full
        append(shards, batch([1, 2, 3]))
        assert shards.is_full == full
        shards.abort()

    def test_what_was_written_counts(self, store: Path) -> None:
        shards = writer(store, shard_bytes=10)
        append(shards, batch([1, 2, 3]))
        assert shards.docs_that_fit(documents(batch([1], [1], [1]))) == 2
        shards.abort()


class TestFailure:
    def test_aborting_leaves_finished_shards_and_nothing_else(self, store: Path) -> None:
        shards = writer(store)
        append(shards, batch([1]))
        shards.close_shard((0, 0))
        append(shards, batch([2]))
        shards.reject([reject(0)])
        shards.abort()
        assert names(store, REJECTS) == []
        assert names(store) == FILES_OF_THE_FIRST

    def test_a_shard_that_cannot_be_synced_does_not_exist(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shards = writer(store)
        append(shards, batch([1]))

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        shards.close_shard((0, 0))
        append(shards, batch([2]))
        with pytest.raises(OSError, match="No space left"):
            shards.close_shard(None)
        shards.abort()
        assert names(store) == []

    def test_the_last_shard_s_failure_is_not_lost(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shards = writer(store)

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        shards.close_shard(None)
        with pytest.raises(OSError, match="No space left"):
            shards.finish()
        shards.abort()
        assert names(store) == []

    def test_files_that_cannot_be_opened_leave_none(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = os.open

        def refuse(path: str, *arguments: int, **directory: int) -> int:
            if ".pos." in str(path):
                raise OSError(24, "Too many open files")
            return opened(path, *arguments, **directory)

        shards = writer(store)
        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            append(shards, batch([1]))
        shards.abort()
        assert names(store) == []

    def test_a_receipt_comes_last(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            seen.append(names(store) + names(store, REJECTS))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        shards = writer(store)
        append(shards, batch([1]))
        shards.reject([reject(0)])
        shards.close_shard(None)
        shards.finish()
        with_receipt = [listing for listing in seen if "train-00003-000.json" in listing]
        assert with_receipt == [names(store) + names(store, REJECTS)]  # only the very last sync, of the directory
