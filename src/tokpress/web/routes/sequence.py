"""The view of a packed sequence: a page of its tokens with labels, positions and documents."""

from __future__ import annotations

from tokpress.view.sequences import view_sequence
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import Parameters
from tokpress.web.session import Session
from tokpress.web.snippets import on_store

METHODS = ("concat", "bestfit", "pad")
MOST_SEQ_LEN = 2**18  # each document of a sequence is looked up: a bound for the work of a request
PAGE_TOKENS = 1024


def packing_of(parameters: Parameters) -> tuple[int, str, bool]:
    """Length, method and whether labels are shifted: what a dataset is made of."""
    seq_len = parameters.integer("seq_len", 2048, least=1, most=MOST_SEQ_LEN)
    return seq_len, parameters.choice("method", METHODS, "concat"), parameters.flag("shift")


def sequence(session: Session, parameters: Parameters) -> Reply:
    store = session.engine_ready(session.store(parameters.store, parameters.split))
    seq_len, method, shift = packing_of(parameters)
    seq, first = parameters.integer("seq", 0), parameters.integer("first", 0)
    across = parameters.flag("mask_across_docs")
    view = view_sequence(
        store,
        seq,
        seq_len=seq_len,
        method=method,
        shift_labels=shift,
        mask_across_docs=across,
        first=first,
        count=PAGE_TOKENS,
    )
    call = (
        f"view.view_sequence(store, {seq}, seq_len={seq_len}, method={method!r}, shift_labels={shift}, "
        f"mask_across_docs={across}, first={first}, count={PAGE_TOKENS})"
    )
    return Reply(view=view, python=on_store(store, call))


QUICK: dict[str, Answer] = {"sequence": sequence}
SCANS: dict[str, Answer] = {}
