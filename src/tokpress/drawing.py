"""Tables, bars and tokens as HTML that stands for itself: for notebooks and reports.

In: names, numbers and text from anywhere. Out: markup without scripts, in which every text is escaped, and characters
that are not seen or reorder a line are shown by their code. Colours are for light and dark grounds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
.tokpress{font:14px/1.5 system-ui,sans-serif;color:light-dark(#1d1f24,#e9eaec);max-width:60rem}
.tokpress h3{font-size:15px;margin:.3em 0}
.tokpress table{border-collapse:collapse;margin:.2em 0;font-variant-numeric:tabular-nums;background:none}
.tokpress th,.tokpress td{text-align:left;padding:2px 14px 2px 0;border:0;background:none;font-size:13px}
.tokpress th{font-weight:400;color:light-dark(#5c6069,#a4a9b3)}
.tokpress .n{color:light-dark(#5c6069,#a4a9b3);font-size:12px}
.tokpress .text{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;line-height:1.8}
.tokpress .t{box-shadow:inset 1px 0 light-dark(rgb(20 20 60/.3),rgb(255 255 255/.3))}
.tokpress .c0{background:light-dark(#e3e6ff,#33365e)}.tokpress .c1{background:light-dark(#d3f5e0,#1f4436)}
.tokpress .c2{background:light-dark(#fdeac2,#4a3b1a)}.tokpress .c3{background:light-dark(#fddcea,#51304a)}
.tokpress .c4{background:light-dark(#d3f0fd,#1d4250)}
.tokpress .s{background:light-dark(#1d1f24,#e9eaec);color:light-dark(#fff,#15171b);border-radius:3px;padding:0 3px;
font:12px monospace}
.tokpress .m{background:none;color:light-dark(#5c6069,#a4a9b3);text-decoration:line-through dotted}
.tokpress .h{font:11px monospace;color:light-dark(#a72c2c,#ff9d95);border:1px solid;border-radius:3px;padding:0 2px}
.tokpress svg rect{fill:light-dark(#5a5fd6,#8b95ff)}
"""
_SHAPING = {"\u200c", "\u200d"}  # joiners: letters and emoji need them
_BAR_PIXELS = 220


def visible(text: str) -> str:
    """A text as markup."""
    return "".join(escape(char) if _is_seen(char) else f'<span class="h">{_code(char)}</span>' for char in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() or char in "\n\t" or char in _SHAPING or unicodedata.category(char) in ("Mn", "Zs")


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"


def line(text: object) -> str:
    """A text on one line, as markup."""
    return visible(str(text)).replace("\n", "⏎").replace("\t", "→")


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, a row each."""
    cells = "".join(f'<tr><th scope="row">{line(name)}</th><td>{line(value)}</td></tr>' for name, value in rows)
    return f"<table>{cells}</table>"


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Names, values and how they are written, each with a bar."""
    most = max((value for _, value, _ in rows), default=0) or 1
    cells = "".join(
        f'<tr><th scope="row">{line(name)}</th><td>{line(shown)}</td><td><svg width="{_BAR_PIXELS}" height="10" '
        f'aria-hidden="true"><rect width="{value / most * _BAR_PIXELS:.1f}" height="10" rx="2"/></svg></td></tr>'
        for name, value, shown in rows
    )
    return f"<table>{cells}</table>"


def tokens(drawn: Iterable[tuple[str, int, bool, bool | None]]) -> str:
    """Tokens that stand together: text, id, whether it is special, whether it is in the loss."""
    parts = []
    for count, (text, token, special, loss) in enumerate(drawn):
        kind = "s" if special else f"t c{count % 5}"
        kind += " m" if loss is False else ""
        parts.append(f'<span class="{kind}" title="id {token}">{visible(text)}</span>')
    return f'<div class="text" dir="auto">{"".join(parts)}</div>'


def notebook(title: str, *parts: str) -> str:
    """What a notebook shows for an object."""
    return f'<style>{STYLE}</style><div class="tokpress"><h3>{line(title)}</h3>{"".join(parts)}</div>'
