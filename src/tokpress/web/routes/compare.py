"""Two tokenizers on one text, and two stores on one record."""

from __future__ import annotations

from tokpress.view.compare import MOST_CHARS, align_stores, compare_text, document_text
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import Parameters
from tokpress.web.session import Session
from tokpress.web.snippets import opened


def compare(session: Session, parameters: Parameters) -> Reply:
    """A text that was typed, or the text of a document."""
    names = session.tokenizers
    chosen = [parameters.integer(side, default) for side, default in (("a", 0), ("b", min(1, len(names) - 1)))]
    engines = {f"{k} {names[number]}": session.engine(number) for k, number in zip("ab", chosen, strict=True)}
    text = parameters.text("text", "", most=MOST_CHARS)
    if not text and parameters.text("doc", ""):
        store = session.engine_ready(session.store(parameters.store, parameters.split))
        text = document_text(store, parameters.integer("doc"))
    return Reply(view=compare_text(text, engines))


def align(session: Session, parameters: Parameters) -> Reply:
    first = session.engine_ready(session.store(parameters.store, parameters.split))
    second = session.engine_ready(
        session.store(parameters.integer("other", 1), parameters.text("other_split", "") or None)
    )
    doc = parameters.integer("doc", 0)
    lines = ["import tokpress", "from tokpress import view", "", opened("first", first), opened("second", second)]
    call = f"view.align_stores(first, {doc}, second)"
    return Reply(view=align_stores(first, doc, second), python="\n".join([*lines, call]))


QUICK: dict[str, Answer] = {"compare": compare, "align": align}
SCANS: dict[str, Answer] = {}
