"""Documents -> sequences of a fixed length.

In: a split of a store. Out: a `Packing`: which tokens stand where in sequence i. It is an index over the same token bytes,
so that any number of lengths and methods costs nothing but a plan, if that.

    base       the contract
    concat     documents end to end, cut every seq_len; no index
    pad        a document a row; no index
    bestfit    no document that fits is cut; from a stored plan
    planner    makes that plan: patterns (best-fit decreasing on the histogram of lengths), assignment (pieces to patterns)
    plan       the plan on disk
    waste      what a packing costs
    pack       tokpress.pack: the report, and the plan where one is needed
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TypedDict, Unpack

from tokpress.errors import UsageError
from tokpress.packing.bestfit import BestFitPacking
from tokpress.packing.concat import ConcatPacking
from tokpress.packing.pad import PadPacking, Side
from tokpress.packing.plan import LongDocs
from tokpress.store.reader import Store


class PackingOptions(TypedDict, total=False):
    """What the methods take beside a length; see the class of each."""

    overlap: int  # concat
    keep_last: bool  # concat
    long_docs: LongDocs  # bestfit
    padding_side: Side  # pad
    truncation_side: Side  # pad


AnyPacking = ConcatPacking | BestFitPacking | PadPacking
_METHODS: dict[str, Callable[..., AnyPacking]] = {
    "concat": ConcatPacking,
    "bestfit": BestFitPacking,
    "pad": PadPacking,
}


def check_options(method: str, options: PackingOptions) -> None:
    """Raises UsageError for a method that there is not, or an option that it does not take."""
    if method not in _METHODS:
        raise UsageError(f"there is no packing method {method!r}. Choose one of {', '.join(_METHODS)}.")
    taken = _options_of(method)
    for option in options:
        if option not in taken:
            owners = [name for name in _METHODS if option in _options_of(name)]
            said = f"is for --method {owners[0]}" if owners else "is no option of a packing"
            takes = " and ".join(map(_flag, taken))
            raise UsageError(f"{_flag(option)} {said}; --method {method} takes {takes}. Leave it out.")


def open_packing(
    store: Store, *, seq_len: int, method: str = "concat", **options: Unpack[PackingOptions]
) -> AnyPacking:
    """The packing of this method: the one place where a name meets its class. `bestfit` needs a plan: `tokpress.pack`."""
    check_options(method, options)
    return _METHODS[method](store, seq_len=seq_len, **options)


def _options_of(method: str) -> list[str]:
    return [name for name in signature(_METHODS[method]).parameters if name not in ("store", "seq_len")]


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
