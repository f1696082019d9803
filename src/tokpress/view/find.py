"""Documents by what is in them: a text, a token, a kept field, a place in an input.

In: an open store, what to look for, where to begin. Out: `FindPage`: documents that have it, and where to go on. A call
looks at a bounded part of the store, so that whoever asks can show how far it is, and stop. Tokens are searched as arrays
and text as bytes of whole blocks; no document is looked at one by one unless it has a hit.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow.compute as pc

from tokpress.batches import Ids, Int64s
from tokpress.errors import UsageError
from tokpress.records import KEPT
from tokpress.store.kept import read_kept_rows
from tokpress.store.reader import Store
from tokpress.view.vocabulary import vocabulary_of

FIND_TOKENS = 2**22  # looked at by a call for a token
FIND_TEXT_TOKENS = 2**20  # for a text: their bytes are put together
FIND_KEPT_DOCS = 2**17
MOST_FOUND = 50
_MOST_HITS = 10_000  # of a text, in a call
_LONG_DOC = 8  # of a document of more calls' worth of tokens than this the rest is not looked at


class Found(msgspec.Struct, frozen=True, kw_only=True):
    doc: int
    token: int | None = None  # of the document, where it begins; None: what was found is no token


class FindPage(msgspec.Struct, frozen=True, kw_only=True):
    found: list[Found]  # each document once
    first_doc: int  # where this call began
    next_doc: int | None  # where to go on; None: the whole split was looked at
    num_docs: int


def find_token(store: Store, token: int, *, first_doc: int = 0, most_tokens: int = FIND_TOKENS) -> FindPage:
    """Documents with this id, from `first_doc` on."""
    start, stop, next_doc = _stretch(store, first_doc, most_tokens)
    hits = np.flatnonzero(store.tokens(start, stop) == token) + start
    return _page(store, first_doc, next_doc, hits)


def find_text(
    store: Store, text: str, *, first_doc: int = 0, ignore_case: bool = False, most_tokens: int = FIND_TEXT_TOKENS
) -> FindPage:
    """Documents whose tokens spell this text, across token boundaries; `ignore_case` is for ASCII letters."""
    needle = text.encode()
    if not needle:
        raise UsageError("there is no text to look for. Give some.")
    start, stop, next_doc = _stretch(store, first_doc, most_tokens)
    spelled, bounds = vocabulary_of(store.engine).spell(_known(store, store.tokens(start, stop)))
    data = spelled.tobytes()
    if ignore_case:
        needle, data = needle.lower(), data.lower()
    found: list[int] = []
    at = data.find(needle)
    while at >= 0 and len(found) < _MOST_HITS:
        found.append(at)
        at = data.find(needle, at + 1)
    hits = np.searchsorted(bounds, np.array(found, np.int64), "right") - 1 + start
    last = np.searchsorted(bounds, np.array(found, np.int64) + len(needle), "left") - 1 + start
    if at >= 0:  # there are more
        after = int(_docs_at(store, hits[-1:])[0]) + 1
        next_doc = after if after < store.num_docs else None
    return _page(store, first_doc, next_doc, hits, last)


def find_kept(store: Store, field: str, value: str, *, first_doc: int = 0, most_docs: int = FIND_KEPT_DOCS) -> FindPage:
    """Documents whose kept field (`--keep`) is this value."""
    _check_doc(store, first_doc)
    if not store.num_docs:
        return FindPage(found=[], first_doc=0, next_doc=None, num_docs=0)
    index = int(np.searchsorted(store.shard_doc_ends, first_doc, "right"))
    receipt, end = store.shard_receipt(index), int(store.shard_doc_ends[index])
    begin = end - receipt.docs
    if KEPT not in receipt.files:
        raise UsageError(f"{store.url} keeps no fields beside its documents. Build it with --keep {field}")
    stop = min(first_doc + most_docs, end)
    rows = read_kept_rows(store.storage, receipt.path(KEPT), first_doc - begin, stop - begin)
    if field not in rows.column_names:
        raise UsageError(f"{field!r} is none of the fields that {store.url} keeps: {', '.join(rows.column_names)}.")
    same = pc.fill_null(pc.equal(rows[field], value), False).to_numpy()
    docs = (np.flatnonzero(same)[:MOST_FOUND] + first_doc).tolist()
    if len(docs) == MOST_FOUND:
        stop = docs[-1] + 1
    return FindPage(
        found=[Found(doc=doc) for doc in docs],
        first_doc=first_doc,
        next_doc=stop if stop < store.num_docs else None,
        num_docs=store.num_docs,
    )


def find_position(store: Store, source: str, position: int) -> int | None:
    """The first document of this split that comes from an input at a byte offset or row, or the next one after it.

    None: there is none. An input's shards follow each other in the order of its records, so that few are opened."""
    inputs = {entry.path: number for number, entry in enumerate(store.plan.inputs)}
    if source not in inputs:
        raise UsageError(f"{source!r} is none of the {len(inputs):,} inputs of {store.url}.")
    runs = _runs_of(store, inputs[source])
    low, high = 0, len(runs)
    while low < high:  # the first run whose last document is not before the position
        middle = (low + high) // 2
        index, _, stop = runs[middle]
        if int(store.shard(index).positions[stop - 1]) < position:
            low = middle + 1
        else:
            high = middle
    if low == len(runs):
        return None
    index, start, stop = runs[low]
    receipt = store.shard_receipt(index)
    k = start + int(np.searchsorted(store.shard(index).positions[start:stop], position))
    return int(store.shard_doc_ends[index]) - receipt.docs + k


def _runs_of(store: Store, number: int) -> list[tuple[int, int, int]]:
    """Where documents of an input stand: (shard, first, one after the last)."""
    runs = []
    for index in range(len(store.shard_doc_ends)):
        begin = 0
        for source, docs in store.shard_receipt(index).sources:
            if source == number and docs:
                runs.append((index, begin, begin + docs))
            begin += docs
    return runs


def _check_doc(store: Store, doc: int) -> None:
    if not 0 <= doc < max(store.num_docs, 1):
        raise IndexError(f"document {doc} is outside this split's {store.num_docs:,} documents")


def _stretch(store: Store, first_doc: int, most_tokens: int) -> tuple[int, int, int | None]:
    """Tokens of whole documents from `first_doc` on, about `most_tokens` of them, and the document after them. A document
    that is longer than that stands alone."""
    _check_doc(store, first_doc)
    if not store.num_docs:
        return 0, 0, None
    begin, stop = store.spans(np.array([first_doc], np.int64))
    start = int(begin[0])
    least = min(int(stop[0]), start + _LONG_DOC * most_tokens)
    end = min(start + most_tokens, store.num_tokens)
    if end == store.num_tokens:
        return start, end, None
    next_doc = max(int(_docs_at(store, np.array([end]))[0]), first_doc + 1)
    if next_doc >= store.num_docs:
        return start, max(least, end), None
    return start, max(int(store.spans(np.array([next_doc], np.int64))[0][0]), least), next_doc


def _docs_at(store: Store, tokens: Int64s) -> Int64s:
    """The documents in which these tokens of the stream stand."""
    docs = np.empty(len(tokens), np.int64)
    shards = np.searchsorted(store.shard_token_ends, tokens, "right")
    for index in np.unique(shards).tolist():
        here = np.flatnonzero(shards == index)
        shard = store.shard(index)
        inside = tokens[here] - (int(store.shard_token_ends[index]) - shard.receipt.tokens)
        first = int(store.shard_doc_ends[index]) - shard.receipt.docs
        docs[here] = first + np.searchsorted(shard.ends, inside, "right")
    return docs


def _page(store: Store, first_doc: int, next_doc: int | None, hits: Int64s, last: Int64s | None = None) -> FindPage:
    """Hits as tokens of the stream, ascending; `last`: of each its last token, which has to be in the same document."""
    docs = _docs_at(store, hits)
    if last is not None:
        within = docs == _docs_at(store, last)
        hits, docs = hits[within], docs[within]
    docs, first_hits = np.unique(docs, return_index=True)
    if len(docs) > MOST_FOUND:  # go on after the last one that is told
        docs = docs[:MOST_FOUND]
        next_doc = int(docs[-1]) + 1
    starts, _ = store.spans(docs)
    tokens = hits[first_hits[: len(docs)]] - starts
    found = [Found(doc=doc, token=token) for doc, token in zip(docs.tolist(), tokens.tolist(), strict=True)]
    return FindPage(found=found, first_doc=first_doc, next_doc=next_doc, num_docs=store.num_docs)


def _known(store: Store, ids: Ids) -> Ids:
    """Ids that the vocabulary has; a damaged store may hold others, which spell nothing here."""
    size = len(vocabulary_of(store.engine))
    return ids if not len(ids) or int(ids.max()) < size else np.where(ids < size, ids, 0)
