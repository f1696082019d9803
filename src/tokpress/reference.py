"""The options of a build, described: for `help(tokpress.build)` and for docs/options.md.

In: the declarations. Out: a docstring and a signature that name every option; the reference page. To write the page again:

    python -m tokpress.reference > docs/options.md
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from tokpress.declare import Declared, by_group, table_name
from tokpress.options import OPTIONS
from tokpress.sizes import written_size

Function = TypeVar("Function", bound=Callable[..., Any])

_INTRO = """# Options of a build

Made by `python -m tokpress.reference` from the declarations in `src/tokpress/config.py`; a test says when it is not current.

Each is a flag of `tokpress build`, a keyword of `tokpress.build` and a key of a `--config` file; one without a flag is for
Python only. *Output*: another value is another store; it shows in the plan, and a build with another value does not go on
with this one. *Live*: `tokpress.LiveDataset` takes it, too. Sizes are bytes, or like `4GB` and `512MiB`.

## From a file
`tokpress build --config corpus.toml` takes options from a TOML file; flags win over it. `tokpress build ... --print-config`
prints a build as such a file, defaults included, and does nothing else. Keys are the names below, at the top of the file or
in the table of their group, and `inputs`, `tokenizer`, `out`. Values are as in Python; text is read as a flag's (`\\n` is a
newline), paths are taken as they stand. A key that is no option is an error.

```toml
inputs = ["web/*.parquet"]
tokenizer = "tokenizer.json"
out = "tokens"

[resources]
workers = 8
memory = "16GB"

[store]
keep = ["id", "url"]
```
"""


_HEAD = ("| flag | name | | default | |", "|---|---|---|---|---|")


def documented(function: Function) -> Function:
    """Gives a function that takes `**options` a signature and a docstring that name each of them."""
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    named = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=_left_out(option))
        for options in by_group(OPTIONS).values()
        for option in options
    ]
    function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_keywords()}"
    return function


def options_page() -> str:
    parts = [_INTRO]
    for group, options in by_group(OPTIONS).items():
        parts += [f"## {group}", f"In a file: `[{table_name(group)}]`.", "", *_HEAD, *map(_row, options), ""]
    return "\n".join(parts)


def _keywords() -> str:
    lines = []
    for group, options in by_group(OPTIONS).items():
        lines += [f"{group}:"]
        for option in options:
            default = _shown_default(option)
            text = f"{_meaning(option)}{f' Default: {default}.' if default else ''}"
            lines += textwrap.wrap(text, 110, initial_indent=f"    {option.name}: ", subsequent_indent=" " * 8)
    return "\n".join(lines)


def _row(option: Declared) -> str:
    marks = [mark for mark, holds in (("output", option.output != "no"), ("live", option.live)) if holds]
    default = _shown_default(option)
    cells = [f"`{option.flag}`" if option.flag else "", f"`{option.name}`", _meaning(option)]
    cells += [f"`{default}`" if default else "", ", ".join(marks)]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(option: Declared) -> str:
    return f"{option.help} One of: {', '.join(option.choices)}." if option.choices else option.help


def _left_out(option: Declared) -> Any:
    """What a keyword is that is not given."""
    return None if option.of_chats is not None else option.default


def _shown_default(option: Declared) -> str:
    """Empty where there is none, or the meaning tells it."""
    value = _left_out(option)
    if value in (None, "", (), {}) or value is False:
        return ""
    return written_size(value) if option.kind == "size" else str(value)


if __name__ == "__main__":
    print(options_page(), end="")
