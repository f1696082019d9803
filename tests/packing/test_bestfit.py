"""Best-fit packing: no document that fits is cut, every token stands somewhere once, and little is padding."""

from __future__ import annotations

import json
import multiprocessing
import operator
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import HARD_TEXTS, make_texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.batches import Ids
from tokpress.packing.bestfit import BestFitPacking
from tokpress.packing.plan import LongDocs
from tokpress.packing.planner import write_plan

from .conftest import MakeStore
from .stores import doc_spans, rows_of, seq_lens, shards_of_lengths, tokens_of
from .test_patterns import rooms_piece_by_piece

any_store = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
long_docs_choices = st.sampled_from(["split", "truncate"])


def packed(store: tokpress.Store, seq_len: int, long_docs: LongDocs = "split") -> BestFitPacking:
    write_plan(store, seq_len=seq_len, long_docs=long_docs)
    return BestFitPacking(store, seq_len=seq_len, long_docs=long_docs)


def pieces_piece_by_piece(store: tokpress.Store, seq_len: int, long_docs: LongDocs) -> list[tuple[int, int]]:
    """What documents become: themselves, or chunks and a rest, or their heads."""
    pieces = []
    for start, stop in doc_spans(store):
        while start < stop:
            pieces.append((start, min(start + seq_len, stop)))
            start = stop if long_docs == "truncate" else start + seq_len
    return pieces


class TestSequences:
    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens)
    def test_no_document_that_fits_is_cut(self, make_store: MakeStore, lengths: list[list[int]], seq_len: int) -> None:
        store = make_store(lengths)
        rows = rows_of(packed(store, seq_len))
        places = {place: (row, column) for row, cells in enumerate(rows) for column, place in enumerate(cells)}
        for start, stop in doc_spans(store):
            if 0 < stop - start <= seq_len:
                row, column = places[start]
                assert rows[row][column : column + stop - start] == list(range(start, stop))

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens)
    def test_every_token_stands_somewhere_exactly_once(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int
    ) -> None:
        store = make_store(lengths)
        assert tokens_of(rows_of(packed(store, seq_len))) == list(range(store.num_tokens))

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens)
    def test_truncated_every_document_has_its_head_somewhere_exactly_once(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int
    ) -> None:
        store = make_store(lengths)
        heads = [place for start, stop in doc_spans(store) for place in range(start, min(stop, start + seq_len))]
        assert tokens_of(rows_of(packed(store, seq_len, "truncate"))) == heads

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, long_docs=long_docs_choices)
    def test_pieces_are_documents_or_their_parts_and_sequences_as_full_as_piece_by_piece(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, long_docs: LongDocs
    ) -> None:
        store = make_store(lengths)
        packing = packed(store, seq_len, long_docs)
        pieces = packing.pieces(np.arange(len(packing)))
        expected = pieces_piece_by_piece(store, seq_len, long_docs)
        assert sorted(zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True)) == expected
        rooms = [row.count(None) for row in rows_of(packing)]
        reference = rooms_piece_by_piece([stop - start for start, stop in expected], seq_len)
        assert sorted(rooms) == sorted(reference.elements())

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, data=st.data())
    def test_can_be_asked_for_in_any_order_and_again(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, data: st.DataObject
    ) -> None:
        packing = packed(make_store(lengths), seq_len)
        every = rows_of(packing)
        asked = data.draw(st.lists(st.integers(0, len(every) - 1))) if every else []
        assert rows_of(packing, packing.pieces(np.array(asked, np.int64)), len(asked)) == [every[i] for i in asked]

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens)
    def test_follow_the_corpus(self, make_store: MakeStore, lengths: list[list[int]], seq_len: int) -> None:
        """By their longest pieces; and within a sequence pieces stand in the order of the stream, padding last."""
        packing = packed(make_store(lengths), seq_len)
        pieces = packing.pieces(np.arange(len(packing)))
        longest = []
        for row in range(len(packing)):
            starts, stops = pieces.starts[pieces.rows == row], pieces.stops[pieces.rows == row]
            assert starts.tolist() == sorted(starts.tolist())
            longest.append({int(starts[i]) for i in np.flatnonzero(stops - starts == (stops - starts).max())})
        assert all(min(one) < max(other) for one, other in pairwise(longest))
        for cells in rows_of(packing):
            assert None not in cells[: seq_len - cells.count(None)]

    def test_outside_are_an_index_error(self, make_store: MakeStore) -> None:
        packing = packed(make_store([[3, 3]]), 3)
        for wrong in (-1, 2):
            with pytest.raises(IndexError, match=f"sequence {wrong} is outside this packing's 2 sequences"):
                packing.pieces(np.array([0, wrong]))


class TestWhereADocumentStands:
    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, long_docs=long_docs_choices)
    def test_is_found_again(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, long_docs: LongDocs
    ) -> None:
        store = make_store(lengths)
        packing = packed(store, seq_len, long_docs)
        rows = rows_of(packing)
        for doc, (start, stop) in enumerate(doc_spans(store)):
            holders = [i for i, row in enumerate(rows) if set(range(start, stop)) & set(row)]
            assert packing.sequences_of(doc).tolist() == holders


class TestManyBlocks:
    """Blocks are large; made small, nothing changes."""

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, long_docs=long_docs_choices, block=st.integers(1, 5))
    def test_give_the_same_plan(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, long_docs: LongDocs, block: int
    ) -> None:
        store = make_store(lengths)
        expected = plan_bytes(packed(store, seq_len, long_docs))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokpress.packing.planner._BLOCK_PIECES", block)
            patch.setattr("tokpress.packing.assignment._BLOCK_PIECES", block)
            assert plan_bytes(packed(store, seq_len, long_docs)) == expected

    def test_more_pieces_than_32_bits_can_count_are_numbered_with_64(
        self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store([[3, 9, 0, 4], [5, 5]])
        expected = rows_of(packed(store, 6))
        for module in ("assignment", "plan"):
            monkeypatch.setattr(f"tokpress.packing.{module}.number_dtype", lambda pieces: np.dtype("<i8"))
        packing = packed(store, 6)
        assert packing.plan.order.dtype == np.int64
        assert rows_of(packing) == expected


def plan_bytes(packing: BestFitPacking) -> dict[str, bytes]:
    directory = packing.store.path / "packs" / f"train-bestfit-{packing.seq_len}"
    if packing.long_docs == "truncate":
        directory = directory.with_name(f"{directory.name}-truncate")
    return {path.name: path.read_bytes() for path in directory.iterdir()}


class TestRealText:
    @pytest.mark.parametrize("seq_len", [1, 7, 64, 5000])
    def test_packed_sequences_decode_to_the_documents(self, tmp_path: Path, seq_len: int) -> None:
        texts = [*make_texts(60), *HARD_TEXTS]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", shard_size=3000)
        assert len(store.manifest.splits["train"].shards) > 3
        packing = packed(store, seq_len)
        pieces = packing.pieces(np.arange(len(packing)))
        found: dict[int, Ids] = {}
        for start, stop in zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True):
            found[start] = store.tokens(start, stop)
        stream = np.concatenate([found[start] for start in sorted(found)])
        decoded = [store.decode(stream[start : stop - 1]) for start, stop in doc_spans(store)]  # without the end
        assert decoded == texts


class TestOtherProcesses:
    def test_a_pickled_one_is_small_and_opens_its_own_files(self, make_store: MakeStore) -> None:
        packing = packed(make_store([[3, 9, 4] * 300]), 10)
        data = pickle.dumps(packing)
        assert len(data) < 20_000
        assert rows_of(pickle.loads(data)) == rows_of(packing)

    def test_a_spawned_process_can_read_it(self, make_store: MakeStore) -> None:
        packing = packed(make_store([[3, 9, 4], [7]]), 10)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            sequences = pool.apply(operator.methodcaller("sequences_of", 1), (packing,))
        assert sequences.tolist() == packing.sequences_of(1).tolist()
