"""A document as its tokens.

In: a store and the number of a document. Out: `DocumentView`: where it comes from, and a page of its tokens, each with its
bytes, text, place in the document and whether it is in the loss. Only the tokens of the page are looked up one by one.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import msgspec
import numpy as np

from tokpress.batches import Ids, Mask
from tokpress.drawing import facts, notebook
from tokpress.drawing import tokens as draw_tokens
from tokpress.errors import UsageError
from tokpress.store.reader import Store

PAGE_TOKENS = 1024


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """One token."""

    id: int
    raw: bytes  # what the id stands for; base64 in JSON
    text: str  # a character that several tokens share stands with the last of them
    start: int  # in the bytes of all tokens of the document
    stop: int
    special: bool
    loss: bool | None  # whether it is in the loss; None: the store has no loss masks


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of one document."""

    doc: int  # number in its split
    split: str
    source: str  # path of the input that it comes from
    position: int  # there: byte offset or row
    shard: str
    kept: dict[str, str | None]  # fields that --keep kept
    num_tokens: int  # of the whole document
    loss_tokens: int | None  # of the whole document, that are in the loss; None: the store has no loss masks
    first_token: int  # of the page
    tokens: list[TokenView]

    @property
    def text(self) -> str:
        """Of the page."""
        return "".join(token.text for token in self.tokens)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("source", f"{self.source} at {self.position:,}"),
            ("tokens", f"{self.num_tokens:,}, shown from {self.first_token:,} on"),
            *self.kept.items(),
        ]
        return notebook(f"Document {self.doc:,} of {self.split}", facts(rows), drawn(self.tokens))

    @property
    def next_token(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        stop = self.first_token + len(self.tokens)
        return stop if stop < self.num_tokens else None


def view_document(store: Store, doc: int, *, first: int = 0, count: int | None = PAGE_TOKENS) -> DocumentView:
    """The tokens first .. first + count - 1 of document `doc` (from 0; -1 is the last), or all from `first` on."""
    check_page(first, count)
    ids, mask = store.doc(doc), store.mask(doc)
    source, position = store.where(doc)
    here = slice(first, None if count is None else first + count)
    return DocumentView(
        doc=doc % store.num_docs,
        split=store.split_name,
        source=source,
        position=position,
        shard=store.shard_of(doc),
        kept=store.kept(doc),
        num_tokens=len(ids),
        loss_tokens=None if mask is None else int(mask.sum()),
        first_token=first,
        tokens=view_tokens(store, ids[here], None if mask is None else mask[here], start=_bytes_of(store, ids[:first])),
    )


def view_tokens(
    store: Store, ids: Ids, mask: Mask | Sequence[bool] | None = None, *, start: int = 0
) -> list[TokenView]:
    """Tokens that stand together; the bytes of the first one begin at `start`."""
    special = set(store.manifest.tokenizer.special_tokens.values())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    views = []
    for k, token in enumerate(ids.tolist()):
        raw = store.engine.token_bytes(token)
        views.append(
            TokenView(
                id=token,
                raw=raw,
                text=decoder.decode(raw, final=k == len(ids) - 1),
                start=start,
                stop=start + len(raw),
                special=token in special,
                loss=None if mask is None else bool(mask[k]),
            )
        )
        start += len(raw)
    return views


def drawn(tokens: list[TokenView], loss: list[bool] | None = None) -> str:
    """As HTML. `loss` of each token, where it is not what the store says."""
    marks = [token.loss for token in tokens] if loss is None else loss
    entries = zip(tokens, marks, strict=True)
    return draw_tokens((token.text, token.id, token.special, mark) for token, mark in entries)


def check_page(first: int, count: int | None) -> None:
    if first < 0 or (count is not None and count < 0):
        raise UsageError(f"there is no page of {count} tokens from {first} on. Give numbers from 0 on.")


def _bytes_of(store: Store, ids: Ids) -> int:
    """Each token is looked up once, however often it stands there: a document of megabytes has few thousand of them."""
    counts = np.bincount(ids)
    used = np.flatnonzero(counts)
    return sum(len(store.engine.token_bytes(token)) * int(counts[token]) for token in used.tolist())
