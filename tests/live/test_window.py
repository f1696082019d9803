"""The tokens between the encoder and the training loop, against a slow and obvious reference."""

from __future__ import annotations

import numpy as np
import pytest
from engines.fuzz import unhurried
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import TextBatch, TokenBatch, large_strings
from tokpress.errors import InputError
from tokpress.live.window import Place, Window
from tokpress.records import BAD_JSON, EMPTY, Reject

Docs = list[int]  # their lengths


def batch_of(first: int, lengths: Docs, *, bad: int = 0, records: int = 1) -> tuple[TextBatch, TokenBatch]:
    """Documents first, first + 1, ... at positions ten times that; token k of document d is 100 * d + k. Rejects, of so many
    records each, stand after the last one."""
    numbers = np.arange(first, first + len(lengths))
    after = 10 * (first + len(lengths))
    rejects = [
        Reject(source="a", input=0, position=after - 9 + i, reason=reason, detail="", records=records)
        for i, reason in enumerate([BAD_JSON] * bad + [EMPTY])
    ]
    text = TextBatch(
        text=large_strings(["?"] * len(lengths)),
        positions=10 * numbers,
        sources=np.zeros(len(lengths), np.int32),
        rejects=rejects,
        input=0,
        next_position=after,
    )
    ids = np.concatenate([100 * d + np.arange(n) for d, n in zip(numbers, lengths, strict=True)] or [np.empty(0)])
    return text, TokenBatch(ids.astype(np.uint32), np.cumsum(lengths, dtype=np.int64))


def stream_of(docs: Docs) -> list[tuple[int, int]]:
    """(document, offset) of each token."""
    return [(doc, offset) for doc, length in enumerate(docs) for offset in range(length)]


@unhurried
@given(
    batches=st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=6),
    seq_len=st.integers(1, 12),
    overlap=st.integers(0, 1),
    takes=st.lists(st.integers(1, 5), max_size=40),
)
def test_equals_windows_over_all_tokens(batches: list[Docs], seq_len: int, overlap: int, takes: list[int]) -> None:
    docs = [length for batch in batches for length in batch]
    stream = stream_of(docs)
    window = Window(Place(epoch=3), width=seq_len + overlap, stride=seq_len)
    sequence = first = 0
    for lengths in [*batches, []]:
        window.append(*batch_of(first, lengths, bad=1))
        first += len(lengths)
        while window.sequences:
            count = min(window.sequences, takes.pop() if takes else 1)
            rows, segments = window.rows(count).tolist(), window.segments(count)
            for k in range(count):
                tokens = stream[(sequence + k) * seq_len : (sequence + k) * seq_len + seq_len + overlap]
                assert rows[k] == [100 * doc + offset for doc, offset in tokens]
                here = [
                    (doc, offset + i)
                    for row, length, doc, offset in zip(
                        segments.rows, segments.lengths, segments.docs, segments.offsets, strict=True
                    )
                    for i in range(length)
                    if row == k
                ]
                assert here == tokens
            window.drop_sequences(count)
            sequence += count
            place = window.place()
            if sequence * seq_len < len(stream):
                doc, offset = stream[sequence * seq_len]
                if doc < first:
                    assert (place.epoch, place.doc, place.skip, place.position) == (3, doc, offset, 10 * doc)
            assert window.docs_read == first
    assert window.tokens == len(stream) - sequence * seq_len
    assert window.rejects_read == len(batches) + 1  # the empty one does not count


@unhurried
@given(docs=st.lists(st.integers(0, 9), min_size=1, max_size=12), data=st.data())
def test_goes_on_from_any_token(docs: Docs, data: st.DataObject) -> None:
    stream = stream_of(docs)
    if not stream:
        return
    doc, offset = data.draw(st.sampled_from(stream))
    place = Place(position=10 * doc, doc=doc, skip=offset)
    window = Window(place, width=1, stride=1)
    assert window.place() == place
    window.append(*batch_of(doc, docs[doc:]))
    assert window.place() == place
    left = stream[stream.index((doc, offset)) :]
    assert window.rows(window.sequences).ravel().tolist() == [100 * d + k for d, k in left]


def test_rejects_count_once_they_are_passed() -> None:
    window = Window(Place(), width=4, stride=4)
    window.append(*batch_of(0, [6], bad=2))
    window.append(*batch_of(1, [6], bad=1))
    counts = []
    while window.sequences:
        window.drop_sequences(1)
        counts.append(window.place().rejects)
    assert counts == [0, 2, 3]  # the second sequence ends in the second document, the third one with it


def test_a_reject_counts_for_all_the_records_that_it_stands_for() -> None:
    """A damaged row group is one reject, and thousands of rows."""
    window = Window(Place(), width=4, stride=4)
    window.append(*batch_of(0, [4], bad=2, records=1000))
    assert (window.rejects_read, window.place().rejects) == (2000, 0)
    window.append(*batch_of(1, [4]))
    window.drop_sequences(1)
    assert (window.rejects_read, window.place().rejects) == (2000, 2000)


def test_a_document_that_has_shrunk_is_an_error() -> None:
    window = Window(Place(skip=5), width=2, stride=2)
    with pytest.raises(InputError, match="has 3 tokens, but 5 of it were delivered before"):
        window.append(*batch_of(0, [3, 9]))
