"""How long documents are, and which tokens are frequent.

In: an open store. Out: `LengthsView` and `TokenCounts`. Both are exact for a small store and from a sample for a large one,
and say which: `looked_at` is the number of documents or tokens that were counted.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.store.reader import Store
from tokpress.store.summary import DocLengths
from tokpress.view.sampling import SAMPLE_DOCS, SAMPLE_TOKENS, sampled_lengths, sampled_tokens
from tokpress.view.vocabulary import vocabulary_of

_MOST_FREQUENT = 40


class LengthsView(msgspec.Struct, frozen=True, kw_only=True):
    docs: int  # of the split
    looked_at: int  # fewer than `docs`: the others were not
    mean: float  # of all documents, always exact
    lengths: DocLengths  # of those that were looked at


class FrequentToken(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    raw: bytes  # base64 in JSON
    text: str
    special: bool
    count: int  # among those that were looked at


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int  # of the split
    looked_at: int  # fewer than `tokens`: the others were not
    vocab_size: int
    distinct: int  # ids that occur
    chars_per_token: float  # without special tokens
    bytes_per_token: float
    frequent: list[FrequentToken]  # the most frequent first


def view_lengths(store: Store, *, most: int = SAMPLE_DOCS) -> LengthsView:
    """Lengths of all documents, or of about `most` of them."""
    lengths = sampled_lengths(store, most)
    return LengthsView(
        docs=store.num_docs,
        looked_at=len(lengths),
        mean=round(store.num_tokens / store.num_docs, 2) if store.num_docs else 0.0,
        lengths=DocLengths.of(lengths),
    )


def view_token_counts(store: Store, *, most: int = SAMPLE_TOKENS, frequent: int = _MOST_FREQUENT) -> TokenCounts:
    """The most frequent tokens, and how much text a token holds; of all tokens, or of about `most` of them."""
    counts: Int64s = np.zeros(store.engine.info.vocab_size, np.int64)
    looked_at = 0
    for ids in sampled_tokens(store, most):
        known = np.bincount(ids, minlength=len(counts))
        counts = known + np.pad(counts, (0, len(known) - len(counts)))  # a damaged store may have ids of no vocabulary
        looked_at += len(ids)
    vocabulary, special = vocabulary_of(store.engine), store.manifest.tokenizer.special_tokens.values()
    text = counts[: len(vocabulary)].copy()
    text[[token for token in special if token < len(text)]] = 0
    total = max(int(text.sum()), 1)
    order = np.argsort(-counts, kind="stable")[:frequent]
    return TokenCounts(
        tokens=store.num_tokens,
        looked_at=looked_at,
        vocab_size=len(vocabulary),
        distinct=int(np.count_nonzero(counts)),
        chars_per_token=round(float(text @ vocabulary.chars) / total, 3),
        bytes_per_token=round(float(text @ vocabulary.lengths) / total, 3),
        frequent=[_frequent(store, token, int(counts[token])) for token in order.tolist() if counts[token]],
    )


def _frequent(store: Store, token: int, count: int) -> FrequentToken:
    known = token < store.engine.info.vocab_size
    raw = store.engine.token_bytes(token) if known else b""
    special = token in store.manifest.tokenizer.special_tokens.values()
    return FrequentToken(id=token, raw=raw, text=raw.decode("utf-8", "replace"), special=special, count=count)
