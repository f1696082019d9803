"""Numbers and names of a query, checked.

In: the query string of a request. Out: values within their bounds, or a `BadRequest` that says which is wrong. Everything
that decides how much work a request is has an upper bound here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokpress.errors import UsageError

MOST_CHARS = 16_384  # of any text in a query


class BadRequest(UsageError):  # noqa: N818 - reads as what happened
    """The request itself is wrong."""


class Parameters:
    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query

    def integer(self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**53) -> int:
        text = self._query.get(name)
        if text is None or text == "":
            if default is None:
                raise BadRequest(f"{name} is missing. Give a whole number.")
            return default
        try:
            value = int(text) if len(text) < 20 else most + 1
        except ValueError:
            raise BadRequest(f"{name}={text[:40]!r} is no whole number.") from None
        if not least <= value <= most:
            raise BadRequest(f"{name}={text[:40]} is outside {least:,} to {most:,}.")
        return value

    def text(self, name: str, default: str | None = None, *, most: int = MOST_CHARS) -> str:
        value = self._query.get(name, default)
        if value is None:
            raise BadRequest(f"{name} is missing.")
        if len(value) > most:
            raise BadRequest(f"{name} has {len(value):,} characters; {most:,} are taken at most.")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self._query.get(name) or default
        if value not in choices:
            raise BadRequest(f"{name}={value[:40]!r} is none of {', '.join(choices)}.")
        return value

    def flag(self, name: str) -> bool:
        return self._query.get(name, "") not in ("", "0", "false")

    @property
    def store(self) -> int:
        return self.integer("store", 0, most=10_000)

    @property
    def split(self) -> str | None:
        return self._query.get("split") or None
