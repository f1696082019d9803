"""`--config FILE.toml` and `--print-config`: a build as a file.

In: a TOML file whose keys are the names of options, at its top or in the table of their group, and `inputs`, `tokenizer` and
`out`. Out: what click takes for flags that were not given. And back: the values of a build as such a file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokpress.arguments import did_you_mean
from tokpress.declare import by_group, table_name
from tokpress.errors import UsageError
from tokpress.options import OPTIONS, as_list
from tokpress.sizes import written_size

_ARGUMENTS: dict[str, Any] = {"inputs": str | list[str], "tokenizer": str, "out": str}
_FLAGS = {option.name: option for option in OPTIONS if option.flag}
_TABLES = {table_name(group): members for group, members in by_group(_FLAGS.values()).items()}
_TABLE_OF = {option.name: table for table, members in _TABLES.items() for option in members}


def read_config(path: str) -> dict[str, Any]:
    """Raises UsageError for a file that cannot be read, and for a key or a value that is no option's."""
    try:
        found = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}. Check the path, and that it is TOML.") from error
    values: dict[str, Any] = {}
    for table, name, value in _entries(found):
        if name in values:
            raise UsageError(f"{path} has {name} twice. Leave one of them out.")
        if name not in _ARGUMENTS and name not in _FLAGS:
            known = [*_ARGUMENTS, *_FLAGS, *_TABLES]
            raise UsageError(
                f"{path} has an unknown option {name!r}.{did_you_mean(name, known)} See: tokpress build --help"
            )
        if table not in (None, _TABLE_OF.get(name)):
            where = f"into [{_TABLE_OF[name]}], or at" if name in _TABLE_OF else "at"
            raise UsageError(f"{path} has {name} in [{table}], but it belongs {where} the top of the file.")
        values[name] = _checked(path, name, value)
    return values


def _entries(found: Mapping[str, Any]) -> Iterator[tuple[str | None, str, Any]]:
    for key, value in found.items():
        if key in _TABLES and isinstance(value, dict):
            yield from ((key, name, inner) for name, inner in value.items())
        else:
            yield None, key, value


def _checked(path: str, name: str, value: Any) -> Any:
    """A value of the right type, as click takes it. Its range is checked with the flags."""
    try:
        msgspec.convert(value, _ARGUMENTS[name] if name in _ARGUMENTS else _FLAGS[name].given_as)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {name} is {value!r}: {error}. See: tokpress build --help") from None
    if name == "inputs" or (name in _FLAGS and _FLAGS[name].kind == "paths"):
        return as_list(value)
    return list(value.items()) if isinstance(value, dict) else value


def written_config(values: Mapping[str, Any]) -> str:
    """A file that gives these values again: all of them, so that a later version's defaults do not matter."""
    lines = [f"{name} = {_toml(name, values[name])}" for name in _ARGUMENTS]
    for table, options in _TABLES.items():
        given = [option for option in options if values[option.name] not in (None, "", (), {})]
        if given:
            lines += ["", f"[{table}]"]
        for option in given:
            value = values[option.name]
            sized = option.kind == "size" and written_size(value) != str(value)
            lines.append(f"{option.name} = {_toml(option.name, written_size(value) if sized else value)}")
    return "\n".join([*lines, ""])


def _toml(name: str, value: Any) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name} is {value!r}, which no TOML file can hold. Give it as a flag.") from None
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(name, key)} = {_toml(name, inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(name, inner) for inner in value)}]"
    return repr(value)
