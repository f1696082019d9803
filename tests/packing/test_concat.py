"""Documents end to end, cut every seq_len tokens."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokpress.errors import UsageError
from tokpress.packing import open_packing
from tokpress.packing.concat import ConcatPacking

from .conftest import MakeStore
from .stores import doc_spans, rows_of, seq_lens, shards_of_lengths, tokens_of

any_store = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def reference(tokens: int, seq_len: int, overlap: int, keep_last: bool) -> list[list[int | None]]:
    """Windows over the stream, one after the other."""
    rows: list[list[int | None]] = []
    start = 0
    covered = 0
    while covered < tokens:
        window = list(range(start, min(start + seq_len, tokens)))
        if len(window) == seq_len or keep_last:
            rows.append([*window, *[None] * (seq_len - len(window))])
        covered = start + seq_len
        start += seq_len - overlap
    return rows


class TestSequences:
    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, data=st.data(), keep_last=st.booleans())
    def test_are_windows_over_the_stream(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, data: st.DataObject, keep_last: bool
    ) -> None:
        overlap = data.draw(st.integers(0, seq_len - 1))
        store = make_store(lengths)
        packing = ConcatPacking(store, seq_len=seq_len, overlap=overlap, keep_last=keep_last)
        rows = rows_of(packing)
        assert rows == reference(store.num_tokens, seq_len, overlap, keep_last)
        if keep_last:
            assert set(tokens_of(rows)) == set(range(store.num_tokens))

    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, data=st.data())
    def test_can_be_asked_for_in_any_order_and_again(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, data: st.DataObject
    ) -> None:
        packing = ConcatPacking(make_store(lengths), seq_len=seq_len, keep_last=True)
        every = rows_of(packing)
        asked = data.draw(st.lists(st.integers(0, len(every) - 1))) if every else []
        pieces = packing.pieces(np.array(asked, np.int64))
        assert rows_of(packing, pieces, len(asked)) == [every[i] for i in asked]

    def test_with_targets_shifted_every_token_but_the_first_is_a_target_once(self, make_store: MakeStore) -> None:
        store = make_store([[5, 0, 9], [20, 7]])
        packing = ConcatPacking(store, seq_len=4 + 1, overlap=1)
        targets = [place for row in rows_of(packing) for place in row[1:]]
        assert targets == list(range(1, store.num_tokens))

    def test_outside_are_an_index_error(self, make_store: MakeStore) -> None:
        packing = ConcatPacking(make_store([[10]]), seq_len=5)
        for wrong in (-1, 2):
            with pytest.raises(IndexError, match=f"sequence {wrong} is outside this packing's 2 sequences"):
                packing.pieces(np.array([0, wrong]))

    def test_of_a_trillion_tokens_are_counted_at_once(self, make_store: MakeStore) -> None:
        packing = ConcatPacking(make_store([[3]]), seq_len=2048)
        packing._tokens, packing._count = 10**12, 10**12 // 2048
        last = packing.pieces(np.array([len(packing) - 1]))
        assert last.stops.tolist() == [10**12 // 2048 * 2048]


class TestWhereADocumentStands:
    @any_store
    @given(lengths=shards_of_lengths, seq_len=seq_lens, data=st.data(), keep_last=st.booleans())
    def test_is_found_again(
        self, make_store: MakeStore, lengths: list[list[int]], seq_len: int, data: st.DataObject, keep_last: bool
    ) -> None:
        store = make_store(lengths)
        overlap = data.draw(st.integers(0, seq_len - 1))
        packing = ConcatPacking(store, seq_len=seq_len, overlap=overlap, keep_last=keep_last)
        rows = rows_of(packing)
        for doc, (start, stop) in enumerate(doc_spans(store)):
            holders = [i for i, row in enumerate(rows) if set(range(start, stop)) & set(row)]
            assert packing.sequences_of(doc).tolist() == holders


class TestOptions:
    @pytest.mark.parametrize(("seq_len", "overlap"), [(4, 4), (4, -1), (1, 1)])
    def test_an_overlap_that_leaves_nothing_new_is_refused(
        self, make_store: MakeStore, seq_len: int, overlap: int
    ) -> None:
        with pytest.raises(UsageError, match=f"--overlap {overlap}: .* share 0 to {seq_len - 1} "):
            ConcatPacking(make_store([[9]]), seq_len=seq_len, overlap=overlap)

    @pytest.mark.parametrize("seq_len", [0, -1, 2**31])
    def test_a_length_that_is_none_is_refused(self, make_store: MakeStore, seq_len: int) -> None:
        with pytest.raises(UsageError, match="--seq-len of 1 to"):
            open_packing(make_store([[9]]), seq_len=seq_len)

    def test_it_is_small_when_pickled(self, make_store: MakeStore) -> None:
        packing = ConcatPacking(make_store([[9, 3]] * 3), seq_len=4, overlap=1, keep_last=True)
        assert packing.sequences_of(2).tolist()  # maps a shard
        data = pickle.dumps(packing)
        assert len(data) < 20_000
        assert rows_of(pickle.loads(data)) == rows_of(packing)
