"""What is in a store, for people to look at: typed, a page at a time, JSON as well.

In: an open store. Out: frozen records; the command line and other screens only draw them. Facts that need no more than the
store's own files are made in `store`, and are named here beside the others.

    documents   DocumentView: a document's tokens, with bytes, text and loss
    sequences   SequenceView: a packed sequence as a training step gets it

    StoreSummary   of store.summary: `Store.summary()`
    RejectView     of store.rejects: `Store.rejects()`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokpress.store.rejects import RejectView
    from tokpress.store.summary import DocLengths, SplitSummary, StoreSummary
    from tokpress.view.documents import DocumentView, TokenView, view_document, view_tokens
    from tokpress.view.sequences import SequenceView, Stretch, view_sequence

_HOMES = {
    "DocLengths": "tokpress.store.summary",
    "DocumentView": "tokpress.view.documents",
    "RejectView": "tokpress.store.rejects",
    "SequenceView": "tokpress.view.sequences",
    "SplitSummary": "tokpress.store.summary",
    "StoreSummary": "tokpress.store.summary",
    "Stretch": "tokpress.view.sequences",
    "TokenView": "tokpress.view.documents",
    "view_document": "tokpress.view.documents",
    "view_sequence": "tokpress.view.sequences",
    "view_tokens": "tokpress.view.documents",
}
__all__ = [
    "DocLengths",
    "DocumentView",
    "RejectView",
    "SequenceView",
    "SplitSummary",
    "StoreSummary",
    "Stretch",
    "TokenView",
    "view_document",
    "view_sequence",
    "view_tokens",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tokpress.view' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
