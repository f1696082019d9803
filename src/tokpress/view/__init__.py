"""What is in a store, for people to look at: typed, a page at a time, JSON as well.

In: an open store. Out: frozen records; the command line and other screens only draw them. Facts that need no more than the
store's own files are made in `store`, and are named here beside the others.

    documents   DocumentView: a document's tokens, with bytes, text and loss
    sequences   SequenceView: a packed sequence as a training step gets it
    counts      LengthsView, TokenCounts: lengths of documents, frequent tokens, characters a token
    provenance  ProvenanceView, RejectsView: inputs and their shares, bad records with examples
    packings    PackingView: what each packing wastes
    find        FindPage: documents by text, token, kept field or place in an input
    steps       StepView: a batch of a Loader, and when a document is seen
    compare     CompareView, AlignedView: two tokenizers on a text, two stores on a record
    runs        RunView: a build as its events tell it
    following   RunStatus: a build that goes on while it is looked at
    training    TrainingView: what a StepMeter wrote, over time
    progress    a build as a line or a bar, for who calls it from Python
    report      StoreReport: a store as one file, and its plots
    sampling    which part of a large store is looked at
    vocabulary  the bytes of all ids, in one table

    StoreSummary   of store.summary: `Store.summary()`
    RejectView     of store.rejects: `Store.rejects()`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokpress.store.rejects import RejectView
    from tokpress.store.summary import DocLengths, SplitSummary, StoreSummary
    from tokpress.view.compare import AlignedView, CompareView, align_stores, compare_text
    from tokpress.view.counts import LengthsView, TokenCounts, view_lengths, view_token_counts
    from tokpress.view.documents import DocumentView, TokenView, view_document, view_tokens
    from tokpress.view.find import FindPage, find_kept, find_position, find_text, find_token
    from tokpress.view.following import RunFollower, RunStatus
    from tokpress.view.packings import PackingView, view_packings
    from tokpress.view.provenance import ProvenanceView, RejectsView, view_provenance, view_rejects
    from tokpress.view.report import StoreReport, report_store
    from tokpress.view.runs import RunFold, RunView
    from tokpress.view.sequences import SequenceView, Stretch, view_sequence
    from tokpress.view.steps import StepView, WhenView, view_step, view_when
    from tokpress.view.training import TrainingView, read_training

_HOMES = {
    "AlignedView": "tokpress.view.compare",
    "CompareView": "tokpress.view.compare",
    "DocLengths": "tokpress.store.summary",
    "DocumentView": "tokpress.view.documents",
    "FindPage": "tokpress.view.find",
    "LengthsView": "tokpress.view.counts",
    "PackingView": "tokpress.view.packings",
    "ProvenanceView": "tokpress.view.provenance",
    "RejectView": "tokpress.store.rejects",
    "RejectsView": "tokpress.view.provenance",
    "RunFold": "tokpress.view.runs",
    "RunFollower": "tokpress.view.following",
    "RunStatus": "tokpress.view.following",
    "RunView": "tokpress.view.runs",
    "SequenceView": "tokpress.view.sequences",
    "SplitSummary": "tokpress.store.summary",
    "StepView": "tokpress.view.steps",
    "StoreReport": "tokpress.view.report",
    "StoreSummary": "tokpress.store.summary",
    "Stretch": "tokpress.view.sequences",
    "TokenCounts": "tokpress.view.counts",
    "TokenView": "tokpress.view.documents",
    "TrainingView": "tokpress.view.training",
    "WhenView": "tokpress.view.steps",
    "align_stores": "tokpress.view.compare",
    "compare_text": "tokpress.view.compare",
    "find_kept": "tokpress.view.find",
    "find_position": "tokpress.view.find",
    "find_text": "tokpress.view.find",
    "find_token": "tokpress.view.find",
    "read_training": "tokpress.view.training",
    "report_store": "tokpress.view.report",
    "view_document": "tokpress.view.documents",
    "view_lengths": "tokpress.view.counts",
    "view_packings": "tokpress.view.packings",
    "view_provenance": "tokpress.view.provenance",
    "view_rejects": "tokpress.view.provenance",
    "view_sequence": "tokpress.view.sequences",
    "view_step": "tokpress.view.steps",
    "view_token_counts": "tokpress.view.counts",
    "view_tokens": "tokpress.view.documents",
    "view_when": "tokpress.view.steps",
}
__all__ = [
    "AlignedView",
    "CompareView",
    "DocLengths",
    "DocumentView",
    "FindPage",
    "LengthsView",
    "PackingView",
    "ProvenanceView",
    "RejectView",
    "RejectsView",
    "RunFold",
    "RunFollower",
    "RunStatus",
    "RunView",
    "SequenceView",
    "SplitSummary",
    "StepView",
    "StoreReport",
    "StoreSummary",
    "Stretch",
    "TokenCounts",
    "TokenView",
    "TrainingView",
    "WhenView",
    "align_stores",
    "compare_text",
    "find_kept",
    "find_position",
    "find_text",
    "find_token",
    "read_training",
    "report_store",
    "view_document",
    "view_lengths",
    "view_packings",
    "view_provenance",
    "view_rejects",
    "view_sequence",
    "view_step",
    "view_token_counts",
    "view_tokens",
    "view_when",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tokpress.view' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
