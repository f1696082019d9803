"""A packed sequence as a training step gets it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from golden.recipes import STORES

import tokpress
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.view import SequenceView, view_sequence

TEXTS = ["a b c", "a longer document than the others are", "d", "the last"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    directory = tmp_path_factory.mktemp("view")
    (directory / "a.jsonl").write_bytes(msgspec.json.Encoder().encode_lines([{"text": text} for text in TEXTS]))
    built = tokpress.build(directory / "a.jsonl", tokenizer="bytes", out=directory / "store", shard_size=64)
    tokpress.pack(built.path, seq_len=16, method="bestfit")
    return built


def tokens_of(store: tokpress.Store, view: SequenceView) -> list[int]:
    """What stands in the sequence, by its documents alone."""
    ids = np.full(view.seq_len, store.manifest.eos_id)
    for stretch in view.documents:
        part = store.doc(stretch.doc)[stretch.first_token :][: stretch.tokens]
        ids[stretch.column : stretch.column + stretch.tokens] = part
    return [int(token) for token in ids]


@pytest.mark.parametrize("method", ["concat", "bestfit", "pad"])
class TestPackings:
    def test_documents_are_what_stands_in_it(self, store: tokpress.Store, method: str) -> None:
        data = PretokenizedDataset(store, seq_len=16, method=method, output="numpy")
        for seq in range(len(data)):
            view = view_sequence(store, seq, seq_len=16, method=method)
            assert (view.seq, view.num_sequences, view.method) == (seq, len(data), method)
            assert [token.id for token in view.tokens] == tokens_of(store, view) == data[seq]["input_ids"].tolist()
            assert view.padding == 16 - sum(stretch.tokens for stretch in view.documents)
            for stretch in view.documents:
                assert (stretch.source, stretch.position) == store.where(stretch.doc)

    def test_fields_are_the_loader_s(self, store: tokpress.Store, method: str) -> None:
        fields = ("labels", "position_ids", "doc_ids", "loss_mask")
        data = PretokenizedDataset(
            store,
            seq_len=16,
            method=method,
            fields=fields,
            shift_labels=True,
            mask_across_docs=True,
            output="numpy",
        )
        view = view_sequence(store, 0, seq_len=16, method=method, shift_labels=True, mask_across_docs=True)
        assert {name: getattr(view, name) for name in fields} == {name: data[0][name].tolist() for name in fields}
        assert view.loss_tokens == sum(view.loss_mask)


class TestPages:
    def test_are_the_whole_one_after_the_other(self, store: tokpress.Store) -> None:
        whole = view_sequence(store, 1, seq_len=16)
        pages = [view_sequence(store, 1, seq_len=16, first=first, count=5) for first in (0, 5, 10, 15)]
        for name in ("doc_ids", "position_ids", "labels", "loss_mask", "tokens"):
            assert [entry for page in pages for entry in getattr(page, name)] == getattr(whole, name)
        assert all(page.documents == whole.documents for page in pages)


class TestSequence:
    def test_is_json_and_back(self, store: tokpress.Store) -> None:
        view = view_sequence(store, 0, seq_len=16)
        assert msgspec.json.decode(msgspec.json.encode(view), type=SequenceView) == view

    def test_outside_is_an_index_error(self, store: tokpress.Store) -> None:
        with pytest.raises(IndexError):
            view_sequence(store, 99, seq_len=16)

    def test_a_store_with_masks_marks_what_is_learned(self) -> None:
        store = tokpress.open(STORES / "masks")
        view = view_sequence(store, 0, seq_len=32)
        expected = [
            bool(mask[stretch.first_token + k])
            for stretch in view.documents
            if (mask := store.mask(stretch.doc)) is not None
            for k in range(stretch.tokens)
        ]
        assert [token.loss for token in view.tokens] == expected == view.loss_mask
        assert {True, False} <= set(expected)
        part = view_sequence(store, 0, seq_len=32, first=5, count=20)
        assert [token.loss for token in part.tokens] == expected[5:25]

    def test_one_that_begins_inside_a_document_marks_what_is_learned_there(self) -> None:
        store = tokpress.open(STORES / "masks")
        views = [view_sequence(store, seq, seq_len=7) for seq in range(store.num_tokens // 7)]
        assert any(view.documents[0].first_token for view in views)
        masks = np.concatenate([store.mask(doc) for doc in range(len(store))])
        learned = [token.loss for view in views for token in view.tokens]
        assert learned == masks[: len(learned)].astype(bool).tolist()

    def test_padding_is_the_whole_sequence_s_on_every_page(self, store: tokpress.Store) -> None:
        pages = [view_sequence(store, 0, seq_len=16, method="pad", first=first, count=8) for first in (0, 8)]
        assert [page.padding for page in pages] == [10, 10]  # five letters and the end of the document
