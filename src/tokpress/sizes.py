"""Sizes in bytes, as people write them.

In: `4GB`, `512MiB` or a number. Out: bytes; and back.
"""

from __future__ import annotations

import re

from tokpress.errors import UsageError

_UNITS = {"TiB": 2**40, "TB": 10**12, "GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "kB": 10**3}
_FACTORS = {"": 1} | {unit.lower().removesuffix("b"): factor for unit, factor in _UNITS.items()}


def parse_size(text: str | int) -> int:
    """`"4GB"`, `"512MiB"`, `"1.5g"` or a plain number, as bytes."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"([0-9.]+)\s*([kmgt]?i?)b?", text.strip().lower())
    try:
        if match is None:
            raise ValueError
        return int(float(match[1]) * _FACTORS[match[2]])
    except (ValueError, KeyError):
        raise UsageError(f"{text!r} is not a size. Write it like 4GB, 512MiB or 1048576.") from None


def written_size(size: int) -> str:
    """Bytes as one would type them, exactly: `256MiB`."""
    whole = (f"{size // factor}{unit}" for unit, factor in _UNITS.items() if size and size % factor == 0)
    return next(whole, str(size))
