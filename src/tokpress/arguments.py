"""Arguments that cannot be meant, said in the caller's words.

In: a name and what was given for it. Out: the value, or a TypeError that says what to give instead; or the name that was
probably meant. Bounds are for whoever uses the value.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any


def whole_number(name: str, value: Any) -> int:
    """NumPy's integers are some, too; 2.0 and "2" are none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}. Give a whole number.") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about a name that is not known."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
