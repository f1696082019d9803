"""`load_pretokenized_dataset`: every token predicted once, in order or shuffled, as often as one likes."""

from __future__ import annotations

import numpy as np
import torch

import tokpress

from .conftest import SEQ_LEN


def test_pairs_are_the_stream_and_the_stream_one_further(store: tokpress.Store) -> None:
    pairs = tokpress.load_pretokenized_dataset(store.path, seq_len=SEQ_LEN, output="numpy")
    stream = store.tokens(0, store.num_tokens)
    assert len(pairs) == (store.num_tokens - 1) // SEQ_LEN
    found = list(pairs)
    assert len(found) == len(pairs)
    for i, (input_ids, target_ids) in enumerate(found):
        assert np.array_equal(input_ids, stream[i * SEQ_LEN : (i + 1) * SEQ_LEN])
        assert np.array_equal(target_ids, stream[i * SEQ_LEN + 1 : (i + 1) * SEQ_LEN + 1])


def test_are_tensors_where_torch_is(store: tokpress.Store) -> None:
    input_ids, target_ids = next(iter(tokpress.load_pretokenized_dataset(store, seq_len=SEQ_LEN)))
    assert isinstance(input_ids, torch.Tensor)
    assert target_ids.dtype == torch.int64


def test_shuffled_each_pass_is_another_order_of_the_same(store: tokpress.Store) -> None:
    pairs = tokpress.load_pretokenized_dataset(store, seq_len=SEQ_LEN, shuffle=True, output="numpy")
    passes = [[tuple(input_ids.tolist()) for input_ids, _ in pairs] for _ in range(3)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert len(set(map(tuple, passes))) == 3
    again = tokpress.load_pretokenized_dataset(store, seq_len=SEQ_LEN, shuffle=True, output="numpy")
    assert [tuple(input_ids.tolist()) for input_ids, _ in again] == passes[0]
    neighbour = tokpress.load_pretokenized_dataset(store, seq_len=SEQ_LEN, shuffle=True, seed=1, output="numpy")
    assert [tuple(input_ids.tolist()) for input_ids, _ in neighbour] not in passes


def test_of_padded_documents_padding_is_not_predicted(store: tokpress.Store) -> None:
    pairs = tokpress.load_pretokenized_dataset(store, seq_len=80, method="pad", output="numpy")
    for doc, (input_ids, target_ids) in enumerate(pairs):
        ids = store.doc(doc).tolist()
        assert input_ids.tolist()[: len(ids)] == ids
        assert target_ids.tolist() == ids[1:] + [-100] * (81 - len(ids))
