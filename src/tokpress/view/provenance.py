"""Where a store comes from: its inputs with their shares, and its bad records with examples.

In: an open store. Out: `ProvenanceView` and `RejectsView`. How many documents an input gave stands in the receipts; how many
tokens they have is read from the ends of documents where inputs meet inside a shard.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.records import ON_REQUEST
from tokpress.store.reader import Store
from tokpress.store.rejects import RejectView

_MOST_OPENED = 2_000  # shards that several inputs share, and that are opened to tell their tokens apart
_LISTED = 30
_REJECTS_READ = 5_000
_EXAMPLES = 5


class SourceShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one input gave to a split."""

    path: str
    format: str
    bytes: int  # of the file, as stored
    docs: int
    tokens: int


class ProvenanceView(msgspec.Struct, frozen=True, kw_only=True):
    inputs: int
    input_bytes: int
    exact: bool  # False: the tokens of inputs that share shards are estimated by their documents
    sources: list[SourceShare]  # those with the most tokens
    other_docs: int  # of inputs that are not listed
    other_tokens: int
    options: dict[str, Any]  # of the build, that decide its output


class ReasonView(msgspec.Struct, frozen=True, kw_only=True):
    """Bad records of one kind."""

    reason: str
    count: int
    on_request: bool  # left out because an option says so: not bad
    examples: list[RejectView]


class RejectsView(msgspec.Struct, frozen=True, kw_only=True):
    rejected: int
    read: int  # records, of all
    looked_at: int  # rejects; fewer than `rejected`: examples are from the first ones
    reasons: list[ReasonView]  # the most frequent first


def view_provenance(store: Store, *, listed: int = _LISTED) -> ProvenanceView:
    """The inputs that gave most tokens to this split, and the options of the build."""
    inputs = store.plan.inputs
    docs, tokens, exact = _shares(store, len(inputs))
    top = np.lexsort((np.arange(len(inputs)), -tokens))[:listed].tolist()
    sources = [
        SourceShare(
            path=inputs[i].path, format=inputs[i].format, bytes=inputs[i].size, docs=int(docs[i]), tokens=int(tokens[i])
        )
        for i in top
        if docs[i]
    ]
    return ProvenanceView(
        inputs=len(inputs),
        input_bytes=sum(source.size for source in inputs),
        exact=exact,
        sources=sources,
        other_docs=store.num_docs - sum(source.docs for source in sources),
        other_tokens=store.num_tokens - sum(source.tokens for source in sources),
        options=store.plan.options,
    )


def _shares(store: Store, inputs: int) -> tuple[Int64s, Int64s, bool]:
    """Documents and tokens of each input, and whether all tokens were told apart."""
    docs, tokens = np.zeros(inputs, np.int64), np.zeros(inputs, np.int64)
    left, exact = _MOST_OPENED, True
    for index in range(len(store.shard_doc_ends)):
        receipt = store.shard_receipt(index)
        sources = np.array([source for source, _ in receipt.sources], np.int64)
        counts = np.array([count for _, count in receipt.sources], np.int64)
        np.add.at(docs, sources, counts)
        if len(sources) == 1:
            tokens[sources[0]] += receipt.tokens
            continue
        stops = np.cumsum(counts)
        if left:
            left -= 1
            ends = store.open_shard(index).stored_ends[stops - 1]
        else:
            exact, ends = False, receipt.tokens * stops // max(receipt.docs, 1)
        np.add.at(tokens, sources, np.diff(ends, prepend=0))
    return docs, tokens, exact


def view_rejects(store: Store, *, examples: int = _EXAMPLES, most_read: int = _REJECTS_READ) -> RejectsView:
    """Bad records by reason, with a few of each among the first `most_read`."""
    manifest = store.manifest
    found: dict[str, list[RejectView]] = defaultdict(list)
    looked_at = 0
    for reject in islice(store.rejects(), most_read):
        looked_at += reject.records
        if len(found[reject.reason]) < examples:
            found[reject.reason].append(reject)
        if all(len(found[reason]) >= min(examples, count) for reason, count in manifest.rejects.items()):
            break
    reasons = sorted(manifest.rejects.items(), key=lambda entry: (-entry[1], entry[0]))
    return RejectsView(
        rejected=manifest.totals.rejected,
        read=manifest.totals.read,
        looked_at=looked_at,
        reasons=[
            ReasonView(reason=reason, count=count, on_request=reason in ON_REQUEST, examples=found[reason])
            for reason, count in reasons
        ],
    )
