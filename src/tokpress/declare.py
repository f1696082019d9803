"""How a field of a config is declared as an option, and the list of all that are.

In: structs whose fields are annotated with an `Option`. Out: a `Declared` for each: its name, flag, help, type and default.
Everything that knows the options of a build knows them from this list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

Group = Literal[
    "Dataset", "Reading", "Supervised data", "Splits", "Tokens", "Checks", "Resources", "Store"
]  # as help shows them
Output = Literal[
    "always",  # stored in the plan's options, whatever its value: what plans have held from the start
    "changed",  # stored there unless it is the default: all newer options, so that the plans of older stores stay the same
    "inputs",  # seen in the plan's inputs
    "tokenizer",  # seen in the tokenizer's fingerprint
    "ids",  # seen in the ids of BOS and EOS
    "no",  # the store is the same, whatever its value
]
Kind = Literal[
    "value",  # what the field's type says
    "size",  # bytes, also like 4GB
    "escaped",  # text; typed in a shell, \n and \t are understood
    "share",  # like 1%, or a number
    "path",
    "file",  # a path; the field holds the text of that file
    "fields",  # a list, or names with commas between
    "paths",  # one or a list; a flag to repeat
    "tokens",  # names and ids; a flag to repeat
    "engine",  # a name of the table of engines, which installed packages may add to
]
INTERNAL: Final = "no option: one package tells it another"

_GIVEN_AS: dict[Kind, Any] = {  # the type of what is passed or stands in a file, where it is not the field's
    "size": int | str,
    "share": str | int,
    "fields": str | list[str],
    "paths": str | list[str],
    "tokens": dict[str, int],
}


@dataclass(frozen=True, slots=True)
class Option:
    """What a field is to a user. Every field that has a default has one, or is `INTERNAL`."""

    help: str
    output: Output  # whether it changes what is written, and where the plan says so
    group: Group | None = None  # None: its section's
    kind: Kind = "value"
    name: str | None = None  # of the keyword, and in a file; None: the field's
    flag: str | None = None  # None: the name with dashes; "": for Python only
    metavar: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    live: bool = False  # `LiveDataset` takes it, too
    of_chats: bool | str | None = None  # its value where it is left out and there are chats; None: the default


@dataclass(frozen=True, slots=True)
class Section:
    """What a section of the config is to a user, and to the plan."""

    group: Group
    nested: bool = False  # in the plan under its own name, where it `is_used`; others stand there flat


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Option):
    """An option as everyone sees it: what its field said, and what it left to be guessed."""

    group: Group
    name: str
    flag: str
    section: str
    field: str
    type: Any  # of the field, without None
    default: Any

    @property
    def shown(self) -> str:
        """Its name in a message: as it is typed, if it can be."""
        return self.flag or self.name

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def given_as(self) -> Any:
        return _GIVEN_AS.get(self.kind, self.type)

    @property
    def stored(self) -> bool:
        return self.output in ("always", "changed")


def sections(config: type[msgspec.Struct]) -> dict[str, tuple[type[msgspec.Struct], Section]]:
    """The structs that a config is made of, by name."""
    found = {}
    for field in msgspec.structs.fields(config):
        (kind, *_), section = _annotated(field.type, Section)
        if section is None:
            raise TypeError(f"{config.__name__}.{field.name} has no Section")
        found[field.name] = kind, section
    return found


def declared(config: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """All options of a config, in the order in which they stand there."""
    found = [option for name, (kind, section) in sections(config).items() for option in _fields(name, kind, section)]
    names = [option.name for option in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{config.__name__} has two options with the name {min(twice)}")
    return tuple(found)


def by_group(options: Iterable[Declared]) -> dict[Group, list[Declared]]:
    """As help shows them."""
    groups: dict[Group, list[Declared]] = {group: [] for group in get_args(Group)}
    for option in options:
        groups[option.group].append(option)
    return {group: members for group, members in groups.items() if members}


def table_name(group: Group) -> str:
    """Of a group, in a file of options."""
    return group.split()[0].lower()


def _fields(section_name: str, struct: type[msgspec.Struct], section: Section) -> Iterator[Declared]:
    for field in msgspec.structs.fields(struct):
        (kind, *extras), option = _annotated(field.type, Option)
        if field.required or INTERNAL in extras:
            continue
        if option is None:
            raise TypeError(f"{struct.__name__}.{field.name} is neither declared as an Option nor INTERNAL")
        name = option.name or field.name
        of_value = tuple(part for part in get_args(kind) if part is not NoneType)
        guessed = {
            "group": option.group or section.group,
            "name": name,
            "flag": f"--{name.replace('_', '-')}" if option.flag is None else option.flag,
        }
        yield Declared(
            **{said.name: getattr(option, said.name) for said in fields(Option)} | guessed,
            section=section_name,
            field=field.name,
            type=Union[of_value] if get_origin(kind) in (Union, UnionType) else kind,  # noqa: UP007
            default=field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory(),
        )


def _annotated(hint: Any, wanted: type[Any]) -> tuple[tuple[Any, ...], Any]:
    """What an annotation is made of, and the one of its extras that is wanted."""
    parts = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return parts, next((part for part in parts[1:] if isinstance(part, wanted)), None)
