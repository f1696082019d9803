"""A field is declared as an option, or the package does not load."""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec
import pytest

from tokpress.config import BuildConfig, ReadConfig
from tokpress.declare import INTERNAL, Group, Option, Section, by_group, declared, sections
from tokpress.options import OPTIONS


class Forgotten(ReadConfig, frozen=True, kw_only=True):
    shout: bool = False


class Twice(ReadConfig, frozen=True, kw_only=True):
    other: Annotated[bool, Option("", "no", name="limit")] = False


class WithForgotten(msgspec.Struct):
    read: Annotated[Forgotten, Section("Reading")]


class WithTwice(msgspec.Struct):
    read: Annotated[Twice, Section("Reading")]


class WithoutSection(msgspec.Struct):
    read: ReadConfig


class TestDeclared:
    def test_a_field_without_a_declaration_is_an_error(self) -> None:
        with pytest.raises(TypeError, match=r"Forgotten\.shout is neither declared as an Option nor INTERNAL"):
            declared(WithForgotten)

    def test_so_is_a_section_without_one(self) -> None:
        with pytest.raises(TypeError, match=r"WithoutSection\.read has no Section"):
            sections(WithoutSection)

    def test_and_a_name_that_is_taken(self) -> None:
        with pytest.raises(TypeError, match="two options with the name limit"):
            declared(WithTwice)

    def test_what_packages_tell_each_other_is_no_option(self) -> None:
        hidden = {"kind", "required", "optional"}
        assert {f.name for f in msgspec.structs.fields(ReadConfig) if INTERNAL in get_args(f.type)} == hidden
        assert hidden.isdisjoint(option.name for option in OPTIONS)

    def test_every_other_field_is_one(self) -> None:
        fields = {(name, f) for name, (part, _) in sections(BuildConfig).items() for f in part.__struct_fields__}
        known = {(option.section, option.field) for option in OPTIONS}
        assert fields - known == {("tokenizer", "spec"), ("read", "kind"), ("read", "required"), ("read", "optional")}

    def test_groups_have_all_of_them_in_the_order_of_help(self) -> None:
        groups = by_group(OPTIONS)
        assert list(groups) == list(get_args(Group))
        assert [o for group in groups.values() for o in group] == sorted(
            OPTIONS, key=lambda o: list(groups).index(o.group)
        )
        assert [option.name for option in groups["Store"]] == ["drop_empty", "limit", "keep", "unit_size", "shard_size"]
