"""Types of options, and options that several verbs share beside those of a build; declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tokpress.engines.table import engine_names
from tokpress.errors import UsageError
from tokpress.sizes import parse_size

Function = TypeVar("Function", bound=Callable[..., Any])


class Size(click.ParamType[int]):
    """`4GB`, `512MiB` or a number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Escaped(click.ParamType[str]):
    r"""Text in which `\n`, as it is typed in a shell, is the newline that it means."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value).replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r").replace("\\0", "\0")


class Fields(click.ParamType[tuple[str, ...]]):
    """`id,url`: names of fields."""

    name = "fields"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        fields = tuple(field.strip() for field in value.split(",")) if isinstance(value, str) else tuple(value)
        if not all(fields):
            self.fail(f"{value!r} is not like 'id,url'", param, ctx)
        return fields


class NamedNumber(click.ParamType[tuple[str, int]]):
    """`train=1000000`: a number of something that has a name."""

    name = "name=number"
    example = "train=1000000"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, number = str(value).rpartition("=")
        if not name or not number.isdecimal():
            self.fail(f"{value!r} is not like '{self.example}'", param, ctx)
        return name, int(number)


class TokenId(NamedNumber):
    """`<|endoftext|>=100257`: a special token of a rank file."""

    name = "token=id"
    example = "<|endoftext|>=100257"


class Numbers(click.ParamType[tuple[int, ...]]):
    """`2048,4096`."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        parts = str(value).split(",") if isinstance(value, str) else list(value)
        if not all(str(part).strip().isdecimal() for part in parts):
            self.fail(f"{value!r} is not like '2048,4096'", param, ctx)
        return tuple(map(int, parts))


class EngineName(click.ParamType[str]):
    """A name from the table of engines. Installed packages may add some: they are looked for when they are needed."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in engine_names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, engine_names()))}.", param, ctx)
        return str(value)


_SIDES = click.Choice(["left", "right"])


def packing_options(function: Function) -> Function:
    """What the methods of packing take beside a length; for every verb that packs."""
    options = [
        click.option(
            "--overlap",
            type=int,
            metavar="N",
            help="concat: tokens that neighbouring sequences share; 1, with a --seq-len one larger, where the loader "
            "shifts targets. Default: 0.",
        ),
        click.option(
            "--keep-last", is_flag=True, default=None, help="concat: keep the last, partial sequence, padded."
        ),
        click.option(
            "--long-docs",
            type=click.Choice(["split", "truncate"]),
            help="bestfit: what becomes of documents longer than a sequence. Default: split; every token is kept.",
        ),
        click.option("--padding-side", type=_SIDES, help="pad: where padding stands. Default: right."),
        click.option(
            "--truncation-side", type=_SIDES, help="pad: which end of a long document is lost. Default: right."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function
