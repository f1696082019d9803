"""What flows between the rooms, and the arithmetic on it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import DocumentBatch, TextBatch, TokenBatch, concat_text, large_strings, places


@given(length=st.integers(0, 3000), share=st.sampled_from([0, 0.001, 0.01, 0.1, 1]), seed=st.integers(0, 2**32 - 1))
def test_places_are_those_that_are_set(length: int, share: float, seed: int) -> None:
    flags = np.random.default_rng(seed).random(length) < share
    assert places(flags).tolist() == np.flatnonzero(flags).tolist()


@pytest.mark.parametrize("at", [0, 7, 8, 1599, 1600, 1606])
def test_a_single_one_is_found_wherever_it_is(at: int) -> None:
    flags = np.zeros(1607, np.bool_)
    flags[at] = True
    assert places(flags).tolist() == [at]


def text_batch(docs: int) -> TextBatch:
    return TextBatch(
        text=large_strings([f"text {i}" for i in range(docs)]),
        positions=np.arange(docs, dtype=np.int64) * 7,
        sources=np.arange(docs, dtype=np.int32) // 3,
        input=docs // 3,
        next_position=1000,
        input_bytes=99,
        kept=pa.record_batch({"id": [str(i) for i in range(docs)]}),
        splits=np.arange(docs, dtype=np.int32) % 2,
    )


def document_batch(lengths: list[int]) -> DocumentBatch:
    docs, tokens = len(lengths), sum(lengths)
    return DocumentBatch(
        tokens=TokenBatch(np.arange(tokens, dtype=np.uint16), np.cumsum(lengths, dtype=np.int64)),
        positions=np.arange(docs, dtype=np.int64) * 7,
        sources=np.arange(docs, dtype=np.int32) // 3,
        mask=(np.arange(tokens) % 3 == 0).astype(np.uint8),
        kept=pa.record_batch({"id": [str(i) for i in range(docs)]}),
        splits=np.arange(docs, dtype=np.int32) % 2,
        continued=np.arange(docs) % 5 == 1,
        truncated=np.arange(docs) % 5 == 2,
        audited=np.arange(docs) % 5 == 3,
    )


def facts(batch: TextBatch | DocumentBatch, i: int) -> dict[str, Any]:
    """All that a batch says of a document."""
    said: dict[str, Any] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, TokenBatch):
            said["ids"] = value.doc(i).tolist()
        elif field.name == "mask":
            assert isinstance(batch, DocumentBatch)
            first = int(batch.tokens.ends[i - 1]) if i else 0
            said["mask"] = value[first : batch.tokens.ends[i]].tolist()
        elif isinstance(value, pa.RecordBatch):
            said[field.name] = value.slice(i, 1).to_pylist()
        elif isinstance(value, pa.Array | np.ndarray):
            said[field.name] = value[i].as_py() if isinstance(value, pa.Array) else value[i].item()
    return said


lengths = st.lists(st.integers(0, 9), min_size=1, max_size=15)


class TestDocuments:
    def test_all_that_there_is_to_say_of_one_is_compared_here(self) -> None:
        known = {field.name for field in fields(DocumentBatch)} - {"tokens"} | {"ids"}
        assert set(facts(document_batch([3, 4]), 1)) == known
        of_batches = {"rejects", "input", "next_position", "parse_seconds", "input_bytes"}
        assert set(facts(text_batch(3), 1)) == {field.name for field in fields(TextBatch)} - of_batches

    @given(lengths=lengths, data=st.data())
    def test_a_part_says_the_same_of_them(self, lengths: list[int], data: st.DataObject) -> None:
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(lengths))] * 2)))
        for batch in (document_batch(lengths), text_batch(len(lengths))):
            part = batch.part(start, stop)
            assert [facts(part, i) for i in range(len(part))] == [facts(batch, i) for i in range(start, stop)]

    @given(lengths=lengths, data=st.data())
    def test_so_does_a_choice_of_them(self, lengths: list[int], data: st.DataObject) -> None:
        chosen = sorted(data.draw(st.sets(st.integers(0, len(lengths) - 1))))
        docs, text = document_batch(lengths), text_batch(len(lengths))
        for batch, taken in ((docs, docs.take(np.array(chosen, int))), (text, text.only(np.array(chosen, int), []))):
            assert [facts(taken, i) for i in range(len(taken))] == [facts(batch, i) for i in chosen]

    @given(lengths=lengths, data=st.data())
    def test_parts_are_the_whole_again(self, lengths: list[int], data: st.DataObject) -> None:
        batch = text_batch(len(lengths))
        middle = data.draw(st.integers(1, len(batch)))
        joined = concat_text([batch.part(0, middle), batch.part(middle)])
        assert [facts(joined, i) for i in range(len(joined))] == [facts(batch, i) for i in range(len(batch))]
        assert (joined.input_bytes, joined.text_bytes) == (batch.input_bytes, batch.text_bytes)
