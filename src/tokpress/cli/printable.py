"""What is printed: text from files, made safe for a terminal, and JSON for pipes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Any, TextIO

import click


def printable(text: str) -> str:
    """Shows by its escape whatever could move the cursor, change colours or reorder a line; on one line, too."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def between_words(text: str, stream: TextIO | None = None) -> str:
    """Lines for people, broken between words where standard error, or this stream, is a terminal; never inside of one."""
    if not (stream or sys.stderr).isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 20)
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent="    " if line.startswith(" ") else "  ",
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        for line in text.split("\n")
    )


def print_json(value: Any) -> None:
    """On standard output, for a pipe; a terminal is not commanded by it either."""
    import msgspec

    click.echo(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=1)))


def printable_json(data: bytes) -> str:
    """The same JSON, with characters that could command a terminal or reorder a line as their escapes. They only stand in
    strings: what JSON has beside these is plain."""
    text = data.decode()
    return text if text.isascii() else "".join(char if _is_plain(char) else _json_escape(char) for char in text)


def _is_plain(char: str) -> bool:
    return char.isprintable() or char == "\n"


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[k] << 8 | units[k + 1]:04x}" for k in range(0, len(units), 2))
