"""A document a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import UsageError
from tokpress.packing.pad import PadPacking, Side

from .conftest import MakeStore
from .stores import doc_spans, rows_of, seq_lens, shards_of_lengths

any_store = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
sides = st.sampled_from(["left", "right"])


def reference(store: tokpress.Store, seq_len: int, padding_side: Side, truncation_side: Side) -> list[list[int | None]]:
    rows: list[list[int | None]] = []
    for start, stop in doc_spans(store):
        doc: list[int | None] = list(range(start, stop))
        doc = doc[:seq_len] if truncation_side == "right" else doc[max(len(doc) - seq_len, 0) :]
        padding: list[int | None] = [None] * (seq_len - len(doc))
        rows.append(doc + padding if padding_side == "right" else padding + doc)
    return rows


@any_store
@given(lengths=shards_of_lengths, seq_len=seq_lens, padding_side=sides, truncation_side=sides, data=st.data())
def test_rows_are_documents_cut_or_filled_up_on_the_side_that_was_asked_for(
    make_store: MakeStore,
    lengths: list[list[int]],
    seq_len: int,
    padding_side: Side,
    truncation_side: Side,
    data: st.DataObject,
) -> None:
    store = make_store(lengths)
    packing = PadPacking(store, seq_len=seq_len, padding_side=padding_side, truncation_side=truncation_side)
    expected = reference(store, seq_len, padding_side, truncation_side)
    assert rows_of(packing) == expected
    asked = data.draw(st.lists(st.integers(0, len(expected) - 1))) if expected else []
    assert rows_of(packing, packing.pieces(np.array(asked, np.int64)), len(asked)) == [expected[i] for i in asked]


def test_a_document_stands_in_its_row_an_empty_one_nowhere(make_store: MakeStore) -> None:
    packing = PadPacking(make_store([[3, 0], [9]]), seq_len=4)
    assert [packing.sequences_of(doc).tolist() for doc in range(3)] == [[0], [], [2]]
    with pytest.raises(IndexError, match="document 3 is outside"):
        packing.sequences_of(3)


def test_a_side_that_is_none_is_refused(make_store: MakeStore) -> None:
    for option in ("padding_side", "truncation_side"):
        with pytest.raises(UsageError, match=f"--{option.replace('_', '-')} 'up' is no side"):
            PadPacking(make_store([[3]]), seq_len=4, **{option: "up"})  # type: ignore[arg-type]
