"""The table of engines: what stands in it, and what packages add."""

from __future__ import annotations

import click
import pytest

from tokpress.cli.build import command
from tokpress.engines.load import reference_engine
from tokpress.engines.table import EngineSpec, all_engines, engine_names, fast_for, reference_for
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerFiles

from . import samples
from .plugins import Install


class TestOurs:
    def test_names(self) -> None:
        assert engine_names() == [
            "auto",
            "gigatoken",
            "native",
            "native-json",
            "huggingface",
            "sentencepiece",
            "tiktoken",
            "bytes",
        ]

    @pytest.mark.parametrize("name", ["cl100k", "mistral-v1-real", "gpt2-ranks", "bytes"])
    def test_each_kind_has_one_reference_of_its_name(self, name: str) -> None:
        kind = samples.sample(name).files.kind
        references = [spec for spec in all_engines() if spec.role == "reference" and kind in spec.kinds]
        assert references == [reference_for(kind)]
        assert samples.reference(name).name == reference_for(kind).name

    def test_what_makes_them_is_there(self) -> None:
        for spec in all_engines():
            assert callable(spec.load())


class TestPackages:
    def test_add_engines_in_the_order_of_their_ranks(self, install: Install) -> None:
        install("other", "swift", "choosy")
        assert engine_names()[-3:] == ["other", "swift", "choosy"]
        assert [spec.name for spec in fast_for("bytes")] == ["choosy", "swift", "other"]
        assert [spec.name for spec in fast_for("bytes", "swift")] == ["swift"]
        assert fast_for("bytes", "bytes") == []

    def test_add_references_for_kinds_of_their_own(self, install: Install) -> None:
        source = (
            "from tokpress.engines.table import EngineSpec\n"
            "mine = EngineSpec(name='mine', kinds=('mine',), role='reference', make='tokpress.engines.bytes:BytesEngine')"
        )
        install("mine", source=source)
        assert reference_engine(TokenizerFiles("mine", {}), "text").info.kind == "mine"

    def test_add_choices_to_the_command_line(self, install: Install) -> None:
        install("swift")
        context = click.Context(command)
        option = next(parameter for parameter in command.params if parameter.name == "engine")
        assert option.type.convert("swift", option, context) == "swift"
        with pytest.raises(click.BadParameter, match=r"'warp' is not one of 'auto', .*'swift'"):
            option.type.convert("warp", option, context)

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("import no_such_module", "No module named 'no_such_module'"),
            ("mine = 5", "no EngineSpec: 5"),
            ("", "no attribute 'mine'"),
            (
                "from tokpress.engines.table import EngineSpec\n"
                "mine = EngineSpec(name='gigatoken', kinds=(), role='fast', make='')",
                "its name 'gigatoken' is taken",
            ),
            (
                "from tokpress.engines.table import EngineSpec\n"
                "mine = EngineSpec(name='auto', kinds=(), role='fast', make='')",
                "its name 'auto' is taken",
            ),
        ],
    )
    def test_one_that_cannot_be_used_is_named(
        self,
        install: Install,
        source: str,
        reason: str,
    ) -> None:
        install("mine", source=source)
        with pytest.raises(TokenizerError) as raised:
            engine_names()
        assert "'mine' of the package plugin-engines cannot be used" in str(raised.value)
        assert reason in str(raised.value)


@pytest.mark.parametrize("make", ["no_such_module:x", "tokpress.engines.bytes:NoSuchEngine"])
def test_an_engine_whose_module_is_missing_says_so(make: str) -> None:
    spec = EngineSpec(name="lost", kinds=(), role="fast", make=make)
    with pytest.raises(TokenizerError, match=r"the engine lost cannot be imported: .*Install it again"):
        spec.load()
