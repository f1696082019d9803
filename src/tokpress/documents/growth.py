"""How much Jinja2's filters may make of little: those whose result can be far larger than what they are given.

In: a filter's arguments, under Jinja2's names. Out: about how many characters or items it would make beyond its input,
counted before it makes them. Filters that are not here make a few times their input at the most (the tests have the list),
but for `join`, `sum` and `tojson`, whose parts are counted one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_LINE_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def _batch(value: Any, linecount: int, fill_with: Any = None) -> int:  # noqa: ARG001 - as Jinja2 calls it, here and below
    return linecount


def _center(value: Any, width: int = 80) -> int:  # noqa: ARG001
    return abs(width)


def _format(value: Any, *args: Any, **kwargs: Any) -> int:
    return max(widths(str(value), (*args, *kwargs.values())), default=0)


def _indent(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> int:  # noqa: ARG001
    each = len(width) if isinstance(width, str) else abs(width)
    return each * (len(_LINE_ENDS.findall(str(s))) + 1)


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> int:
    times = str(s).count(str(old))
    return len(str(new)) * (times if count is None or count < 0 else min(times, count))


def _round(value: Any, precision: int | None = 0, method: str = "common") -> int:  # noqa: ARG001
    return 10 * abs(precision or 0)  # it may multiply by ten to that power


def _slice(value: Any, slices: int, fill_with: Any = None) -> int:  # noqa: ARG001
    return slices


def _urlize(
    value: Any,
    trim_url_limit: int | None = None,  # noqa: ARG001
    nofollow: bool = False,  # noqa: ARG001
    target: Any = None,
    rel: Any = None,
    extra_schemes: Any = None,  # noqa: ARG001
) -> int:
    return len(f"{target or ''}{rel or ''}") * len(str(value).split())


def _wordwrap(
    s: Any,
    width: int = 79,
    break_long_words: bool = True,  # noqa: ARG001
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,  # noqa: ARG001
) -> int:
    text = str(s)
    lines = 2 * len(text) // max(width, 1) + len(_LINE_ENDS.findall(text)) + 1  # two lines together are wider than one
    return lines * len(wrapstring or "\n")


GROWTH: dict[str, Callable[..., int]] = {
    "batch": _batch,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "replace": _replace,
    "round": _round,
    "slice": _slice,
    "urlize": _urlize,
    "wordwrap": _wordwrap,
}


def widths(pattern: str, values: Any) -> list[int]:
    """What a `%` format may fill up to: numbers written in it and, where it says "*", those that it is given."""
    given = values if isinstance(values, tuple) else (values,)
    starred = [abs(value) for value in given if isinstance(value, int)] if "*" in pattern else []
    return numbers(pattern) + starred


def numbers(text: str) -> list[int]:
    """Those written in a text: widths, where it is a format."""
    return [int(digits[:18]) for digits in re.findall(r"[0-9]+", text)]
