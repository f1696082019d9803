"""The options of a build as flags, made from their declarations.

In: `tokpress.options.OPTIONS`. Out: click options, under the name of the keyword and with its default, in groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click

from tokpress.cli.options import EngineName, Escaped, Fields, Function, Size, TokenId
from tokpress.declare import Declared, by_group
from tokpress.options import OPTIONS
from tokpress.sizes import written_size


class Flag(click.Option):
    """A flag under a heading of its own."""

    def __init__(self, *args: Any, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """Shows its own options first, then each group under its heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in ("Options", *by_group(OPTIONS)):
            shown = [option for option in self.get_params(ctx) if getattr(option, "group", "Options") == heading]
            records = [record for option in shown if (record := option.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def flags(*only: str, without: Collection[str] = ()) -> Callable[[Function], Function]:
    """All options that can be typed, or those of some groups; without some by name."""
    groups = by_group(option for option in OPTIONS if option.flag and option.name not in without)

    def add(function: Function) -> Function:
        for option in reversed([option for group in only or groups for option in groups[group]]):  # type: ignore[index]
            function = _flag(option)(function)
        return function

    return add


def read_options(function: Function) -> Function:
    """How records are read; for every verb that reads inputs."""
    return flags("Reading")(function)


def _flag(option: Declared) -> Callable[[Function], Function]:
    default = None if option.of_chats is not None else option.default
    named, settings = option.flag, _settings(option)
    if option.type is bool:  # what a config file or a chat template switches on, a flag can switch off
        named = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
    return click.option(
        named,
        option.name,
        cls=Flag,
        group=option.group,
        help=option.help,
        metavar=option.metavar,
        default=written_size(default) if option.kind == "size" and default is not None else default,
        show_default=default not in (None, "", (), {}) and option.type is not bool,
        **settings,
    )


def _settings(option: Declared) -> dict[str, Any]:
    """What click must know of its type."""
    match option.kind:
        case "size":
            return {"type": Size()}
        case "escaped":
            return {"type": Escaped()}
        case "path" | "file":
            return {"type": click.Path(dir_okay=False)}
        case "fields":
            return {"type": Fields()}
        case "paths":
            return {"multiple": True}
        case "tokens":
            return {"type": TokenId(), "multiple": True, "callback": lambda _ctx, _flag, pairs: dict(pairs)}
        case "share":
            return {"type": str}
        case "engine":
            return {"type": EngineName()}
        case "value":
            return _of_type(option)


def _of_type(option: Declared) -> dict[str, Any]:
    if option.type is bool:
        return {"is_flag": True}
    if option.choices:
        return {"type": click.Choice(option.choices)}
    if option.at_least is not None or option.at_most is not None:
        ranged: Any = click.FloatRange if option.type is float else click.IntRange
        return {"type": ranged(option.at_least, option.at_most)}
    return {"type": option.type}
