"""The reference pages that are made from the code: docs/reference/commands.md and docs/reference/python.md.

In: the commands' own `--help`, and the signatures and docstrings of the public names. Out: Markdown. A test says when a page
is not current; `make docs` writes them again.

    python tools/reference_pages.py docs/reference
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import tokpress
from tokpress import errors
from tokpress.cli import tokpress as command_line

_COLUMNS = 100
_COMMANDS = """# Commands

Made by `make docs` from what each command says of itself with `--help`; a test says when it is not current.

Exit codes are those of [`tokpress --help`](#tokpress): 0 done, 1 failed or damage found, 2 wrong usage, 3 too many rejected
records or nothing written, 130 interrupted. Results go to standard output, everything else to standard error.
"""
_PYTHON = """# Python

Made by `make docs` from signatures and docstrings; a test says when it is not current. `import tokpress` imports none of it:
a name is loaded when it is first used.
"""


def commands_page() -> str:
    parts = [_COMMANDS]
    for path, command in _all_commands("tokpress", command_line):
        context = click.Context(
            command,
            info_name=path,
            terminal_width=_COLUMNS,
            max_content_width=_COLUMNS,
            help_option_names=["-h", "--help"],
        )
        parts += [f"## {path}", "", "```text", *map(str.rstrip, command.get_help(context).splitlines()), "```", ""]
    return "\n".join(parts)


def _all_commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from _all_commands(f"{path} {name}", inner)


def python_page() -> str:
    parts = [_PYTHON]
    names = [name for name in tokpress.__all__ if name not in ("events", "view", "__version__")]
    parts += [f"[`{name}`](#{_anchor(f'tokpress.{name}')})" + (" ·" if name != names[-1] else "") for name in names]
    parts.append("")
    for name in names:
        parts += _entry(f"tokpress.{name}", getattr(tokpress, name))
    for module in ("events", "view"):
        inside = getattr(tokpress, module)
        parts += [f"## tokpress.{module}", "", *_prose(inside.__doc__ or ""), ""]
        for name, value in _members_of_module(inside):
            parts += _entry(f"tokpress.{module}.{name}", value, level=3)
    parts += ["## Errors", "", "All of them are in `tokpress.errors`; catch `tokpress.TokpressError` for any.", ""]
    parts += ["```text", *inspect.cleandoc(errors.__doc__ or "").splitlines(), "```", ""]
    return "\n".join(parts)


def _members_of_module(module: Any) -> list[tuple[str, Any]]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = [(name, getattr(module, name)) for name in names]
    return [
        (name, value)
        for name, value in found
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith(module.__name__)
    ]


def _entry(title: str, value: Any, level: int = 2) -> list[str]:
    head = [f"{'#' * level} {title}", "", *_signature(title, value), *_prose(_without_options(inspect.getdoc(value)))]
    if not inspect.isclass(value):
        return [*head, ""]
    lines = [*head, ""]
    for name, member in public_members(value):
        call = "" if isinstance(member, property) else str(_short_signature(member))
        text = " ".join((inspect.getdoc(member) or "").split("\n\n")[0].split())
        lines.append(f"- `{name}{call}`" + (f": {text}" if text else ""))
    fields = getattr(value, "__struct_fields__", ())
    if fields:
        lines.append(f"- Fields: {', '.join(f'`{field}`' for field in fields)}")
    return [*lines, ""]


def public_members(value: type) -> list[tuple[str, Any]]:
    """Methods and properties that a class defines for its users, in the order of the source."""
    found = []
    for kind in reversed(value.__mro__):
        if not kind.__module__.startswith("tokpress"):
            continue
        for name, member in vars(kind).items():
            unwrapped = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not name.startswith("_") and (inspect.isfunction(unwrapped) or isinstance(member, property)):
                found.append((name, unwrapped))
    return list(dict(found).items())


def _signature(title: str, value: Any) -> list[str]:
    if inspect.isclass(value) and hasattr(value, "__struct_fields__"):
        return []
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    name = title.rpartition(".")[2] if title.count(".") > 1 else title
    parameters = list(signature.parameters.values())
    if len(parameters) > 30:  # the options of a build
        own = [parameter for parameter in parameters if parameter.annotation is not parameter.empty]
        signature = signature.replace(parameters=own)
        return ["```py", f"{name}{_plain(signature)[:-1]}, **options)", "```", "", *_TO_OPTIONS]
    return ["```py", f"{name}{_plain(signature)}", "```", ""]


_TO_OPTIONS = ["The other keywords are the [options of a build](../options.md).", ""]


def _plain(signature: inspect.Signature) -> str:
    signature = signature.replace(return_annotation=inspect.Signature.empty)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    plain = re.sub(r"<object object at 0x[0-9a-f]+>", "...", str(signature.replace(parameters=parameters)))
    return re.sub(r"<(?:class|built-in function) '?([\w.]+)'?>", r"\1", plain)


def _short_signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    return _plain(signature.replace(parameters=parameters))


def _without_options(docstring: str | None) -> str:
    """The options stand on a page of their own."""
    return re.split(r"\n\n(?=\w+:\n    \w+: )", docstring or "")[0]


def _prose(docstring: str) -> list[str]:
    """A docstring as Markdown: what is indented is code."""
    lines: list[str] = []
    code = False
    for line in inspect.cleandoc(docstring).splitlines():
        indented = line.startswith("    ")
        if indented and not code and (not lines or not lines[-1].strip()):
            lines.append("```python" if _is_python(line) else "```text")
            code = True
        elif code and line.strip() and not indented:
            code = False
            while not lines[-1].strip():
                lines.pop()
            lines += ["```", ""]
        lines.append(line.removeprefix("    ") if code else line)
    if code:
        while not lines[-1].strip():
            lines.pop()
        lines.append("```")
    return [re.sub(r"\(docs/(\w+)\.md\)", r"([more](../\1.md))", line) for line in lines]


def _is_python(line: str) -> bool:
    return bool(re.search(r"[=(]", line)) and not re.search(r" {3,}\S", line.strip())


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


PAGES = {"commands.md": commands_page, "python.md": python_page}


def main(directory: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (Path(directory) / name).write_text(page().rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
