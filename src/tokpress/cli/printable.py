"""Text from files, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Shows by its escape whatever could move the cursor, change colours or reorder a line; on one line, too."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
