"""The view of a store: totals at once, and what takes longer in parts that the page asks for one by one."""

from __future__ import annotations

from tokpress.view.counts import view_lengths, view_token_counts
from tokpress.view.packings import view_packings
from tokpress.view.provenance import view_provenance, view_rejects
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import Parameters
from tokpress.web.session import Session
from tokpress.web.snippets import on_store

MOST_SEQ_LEN = 2**20


def summary(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    return Reply(view=store.summary(lengths=False), python=on_store(store, "store.summary(lengths=False)"))


def lengths(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    return Reply(view=view_lengths(store), python=on_store(store, "view.view_lengths(store)"))


def tokens(session: Session, parameters: Parameters) -> Reply:
    store = session.engine_ready(session.store(parameters.store, parameters.split))
    return Reply(view=view_token_counts(store), python=on_store(store, "view.view_token_counts(store)"))


def inputs(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    return Reply(view=view_provenance(store), python=on_store(store, "view.view_provenance(store)"))


def rejects(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    return Reply(view=view_rejects(store), python=on_store(store, "view.view_rejects(store)"))


def packings(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    seq_len = parameters.integer("seq_len", 2048, least=1, most=MOST_SEQ_LEN)
    call = f"view.view_packings(store, seq_len={seq_len})"
    return Reply(view=view_packings(store, seq_len=seq_len), python=on_store(store, call))


QUICK: dict[str, Answer] = {"store": summary}
SCANS: dict[str, Answer] = {
    "store/lengths": lengths,
    "store/tokens": tokens,
    "store/inputs": inputs,
    "store/rejects": rejects,
    "store/packings": packings,
}
