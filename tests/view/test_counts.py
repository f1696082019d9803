"""Lengths and frequent tokens: exact where all is looked at, close and said so where a sample is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tokpress
from tokpress.store.summary import DocLengths
from tokpress.view import view_lengths, view_token_counts
from tokpress.view.sampling import BLOCKS, blocks, sampled_lengths


class TestBlocks:
    def test_all_where_there_are_few(self) -> None:
        assert blocks(10, 100) == [range(10)]
        assert blocks(0, 100) == []

    def test_evenly_spaced_from_first_to_last_where_there_are_many(self) -> None:
        found = blocks(10**8, 2**20)
        assert (len(found), found[0].start, found[-1].stop) == (BLOCKS, 0, 10**8)
        assert sum(map(len, found)) == 2**20
        steps = np.diff([block.start for block in found])
        assert steps.max() - steps.min() <= 1


class TestLengths:
    def test_of_all_documents(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        found = view_lengths(store)
        assert found.looked_at == found.docs == store.num_docs
        assert found.lengths == DocLengths.of(store.doc_lengths())
        assert len(store.shard_doc_ends) > 5  # over several shards

    def test_of_a_sample(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        whole = store.doc_lengths()
        found = sampled_lengths(store, BLOCKS)  # one document a block
        assert len(found) == BLOCKS < store.num_docs
        assert set(found.tolist()) <= set(whole.tolist())
        starts = [block.start for block in blocks(store.num_docs, BLOCKS)]
        assert found.tolist() == whole[starts].tolist()
        assert view_lengths(store, most=BLOCKS).looked_at == BLOCKS


class TestTokenCounts:
    def test_are_those_of_all_tokens(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        found = view_token_counts(store, frequent=10)
        counts = np.bincount(store.tokens(0, store.num_tokens), minlength=store.engine.info.vocab_size)
        assert [token.count for token in found.frequent] == sorted(counts.tolist(), reverse=True)[:10]
        assert all(counts[token.id] == token.count for token in found.frequent)
        assert found.distinct == np.count_nonzero(counts)
        assert found.looked_at == store.num_tokens

    def test_text_a_token_holds(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        text = "".join(store.text(i) for i in range(store.num_docs))
        plain = store.num_tokens - store.num_docs  # each document ends with EOS
        found = view_token_counts(store)
        assert found.chars_per_token == round(len(text) / plain, 3)
        assert found.bytes_per_token == round(len(text.encode()) / plain, 3)

    def test_of_a_sample_says_so(self, small_store: Callable[..., tokpress.Store]) -> None:
        found = view_token_counts(small_store(), most=1024)
        assert found.looked_at == 1024 < found.tokens
