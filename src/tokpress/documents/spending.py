"""What a template may spend on a record, and what it may write.

In: what a template is about to do. Out: nothing, or `Limit`. Steps (turns of loops and calls) and characters are counted,
not timed, so that a record's fate does not depend on the machine. A value that is about to become text is looked
through before: lists in lists may be few values and more text than there is memory; and what has no text of its own (a
function, a generator) would be written with its address, another one in each run.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, ValuesView
from typing import Any

import jinja2
from jinja2.runtime import LoopContext, Macro

MAX_STEPS = 100_000  # that a template may take for a record, and
STEPS_PER_CHAR = 10  # for each character of it
MAX_CHARS = 1024**2  # that it may write for a record, and
CHARS_PER_CHAR = 64  # for each character of it
_MAX_BITS = 2**20  # of a whole number: products of larger ones take seconds
_PLAIN = (str, bytes, bool, int, float, type(None), range, jinja2.Undefined, LoopContext, Macro)
_VIEWS = (list, tuple, KeysView, ValuesView)


class Limit(Exception):  # noqa: N818 - a reject, no error
    """The template asks for too much."""


class Spending:
    """What a rendering has used up, and where its blocks are."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, record_chars: int) -> None:
        self.steps_left = MAX_STEPS + STEPS_PER_CHAR * record_chars
        self.max_chars = MAX_CHARS + CHARS_PER_CHAR * record_chars
        self.written = 0
        self.spans: list[tuple[int, int]] = []

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Limit("the template takes too many steps for this record: does it loop without end?")

    def check_size(self, chars: int) -> None:
        if chars > self.max_chars:
            raise Limit(f"the template makes more than {self.max_chars:,} characters of this record")

    def check_numbers(self, values: Iterable[Any]) -> None:
        """Of widths, and of other numbers that something is repeated by."""
        for value in values:
            if isinstance(value, int):
                self.check_size(abs(value))

    def check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MAX_BITS:
            raise Limit("the template multiplies numbers without end")

    def check_text(self, value: Any) -> Any:
        """A value that is about to become text. Raises TemplateError for one that has none of its own."""
        if isinstance(value, _PLAIN):
            return value
        size = 0
        waiting = [value]
        while waiting:
            each = waiting.pop()
            size += len(each) if isinstance(each, str) else 2
            self.check_size(size)
            if isinstance(each, _VIEWS):
                waiting += each
            elif isinstance(each, dict):
                waiting += each.keys()
                waiting += each.values()
            elif isinstance(each, ItemsView):
                waiting += [part for item in each for part in item]
            elif not isinstance(each, _PLAIN):
                raise jinja2.TemplateError(
                    f"a {type(each).__name__} has no text that is the same in every run. Write what is in it: "
                    "with list, or call it"
                )
        return value
