"""A packed sequence, as a training step gets it.

In: a store, a length and a packing. Out: `SequenceView`: which stretches of which documents stand in it, and a page of its
tokens with what the loader makes of them: positions, labels, loss. The loader itself is asked, so that what is shown is what
a model would see.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Unpack

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.drawing import facts, notebook
from tokpress.loader.dataset import PretokenizedDataset
from tokpress.packing import PackingOptions
from tokpress.store.reader import Store
from tokpress.view.documents import TokenView, check_page, drawn, view_tokens

_FIELDS = ("input_ids", "labels", "position_ids", "doc_ids", "loss_mask")
_PADDING = -1  # as a document's number


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document, or all of it, in a sequence."""

    doc: int  # number in its split
    column: int  # of its first token, in the sequence
    tokens: int
    first_token: int  # number of that token in the document; above 0 where the document was cut
    source: str  # path of the input that the document comes from
    position: int  # there: byte offset or row


class SequenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of one sequence. Of the lists that are as long as `tokens`, entry k is about token k of the page."""

    seq: int  # number in the packing
    num_sequences: int
    split: str
    seq_len: int
    method: str  # concat, bestfit or pad
    documents: list[Stretch]  # of the whole sequence, in order
    padding: int  # tokens of the whole sequence that are none
    loss_tokens: int  # labels of the whole sequence that count
    first_token: int  # of the page
    tokens: list[TokenView]  # spans count from the start of the sequence; `loss` is the store's own mask
    doc_ids: list[int]  # -1: padding
    position_ids: list[int]  # from 0 at each document
    labels: list[int]  # -100: no loss here
    loss_mask: list[bool]  # whether the label counts

    def _repr_html_(self) -> str:
        return notebook(f"Sequence {self.seq:,} of {self.num_sequences:,}", self.html())

    def html(self) -> str:
        """Its documents and tokens, without a frame."""
        rows: list[tuple[str, object]] = [
            ("packing", f"{self.method}, {self.seq_len:,} tokens, {self.padding:,} of them padding"),
            ("documents", ", ".join(f"{stretch.doc:,}" for stretch in self.documents[:20])),
        ]
        return facts(rows) + drawn(self.tokens, self.loss_mask)


def view_sequence(
    store: Store,
    seq: int,
    *,
    seq_len: int,
    method: str = "concat",
    shift_labels: bool = False,
    mask_across_docs: bool = False,
    first: int = 0,
    count: int | None = None,
    **packing_options: Unpack[PackingOptions],
) -> SequenceView:
    """Sequence `seq` with the options of `PretokenizedDataset`; of its tokens `count` from `first` on, or all."""
    check_page(first, count)
    data = PretokenizedDataset(
        store,
        seq_len=seq_len,
        method=method,
        split=store.split_name,
        fields=_FIELDS,
        shift_labels=shift_labels,
        mask_across_docs=mask_across_docs,
        output="numpy",
        **packing_options,
    )
    row = data[seq]
    page = slice(first, None if count is None else first + count)
    ids, docs = row["input_ids"], row["doc_ids"]
    documents = list(_documents(data, seq % len(data), docs))
    before = sum(len(store.engine.token_bytes(token)) for token in ids[:first].tolist())
    return SequenceView(
        seq=seq % len(data),
        num_sequences=len(data),
        split=store.split_name,
        seq_len=seq_len,
        method=method,
        documents=documents,
        padding=int((docs == _PADDING).sum()),
        loss_tokens=int(row["loss_mask"].sum()),
        first_token=first,
        tokens=view_tokens(store, ids[page], _stored_mask(store, documents, seq_len, page), start=before),
        doc_ids=docs[page].tolist(),
        position_ids=row["position_ids"][page].tolist(),
        labels=row["labels"][page].tolist(),
        loss_mask=row["loss_mask"][page].tolist(),
    )


def _documents(data: PretokenizedDataset, seq: int, docs: Int64s) -> Iterator[Stretch]:
    """The stretches of single documents, in order of their columns."""
    pieces = data.packing.pieces(np.array([seq]))
    bounds = [0, *(np.flatnonzero(np.diff(docs)) + 1).tolist(), len(docs)]
    for column, end in pairwise(bounds):
        doc = int(docs[column])
        if doc == _PADDING:
            continue
        piece = int(np.searchsorted(pieces.columns, column, "right")) - 1
        in_stream = int(pieces.starts[piece]) + column - int(pieces.columns[piece])
        begins, _ = data.store.spans(np.array([doc]))
        source, position = data.store.where(doc)
        yield Stretch(
            doc=doc,
            column=column,
            tokens=end - column,
            first_token=in_stream - int(begins[0]),
            source=source,
            position=position,
        )


def _stored_mask(store: Store, documents: list[Stretch], seq_len: int, page: slice) -> Any:
    """Of each token of the page whether it is in the loss; padding is not. None: the store has no masks."""
    mask = np.zeros(seq_len, np.uint8)
    for stretch in documents:
        of_doc = store.mask(stretch.doc)
        if of_doc is None:
            return None
        mask[stretch.column : stretch.column + stretch.tokens] = of_doc[stretch.first_token :][: stretch.tokens]
    return mask[page]
