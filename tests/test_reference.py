"""What is said of the options is what they are."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress
from tokpress.declare import Declared
from tokpress.options import OPTIONS
from tokpress.reference import options_page

PAGE = Path(__file__).parent.parent / "docs" / "options.md"


class TestPage:
    def test_is_current(self) -> None:
        assert PAGE.read_text() == options_page(), "run: python -m tokpress.reference > docs/options.md"

    def test_is_what_the_module_prints(self) -> None:
        printed = subprocess.check_output([sys.executable, "-m", "tokpress.reference"])
        assert printed == PAGE.read_bytes()

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_has_a_row_for_each(self, option: Declared) -> None:
        (row,) = [line for line in options_page().splitlines() if f"| `{option.name}` |" in line]
        assert row.startswith(f"| `{option.flag}` |" if option.flag else "|  |")
        assert option.help in row
        marks = row.removesuffix(" |").rpartition("| ")[2]
        assert ("output" in marks, "live" in marks) == (option.output != "no", option.live)


class TestHelp:
    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_of_build_lists_each_with_its_meaning(self, option: Declared) -> None:
        shown = " ".join(pydoc.plain(pydoc.render_doc(tokpress.build)).split())
        assert f" {option.name}: {option.help}" in shown

    def test_its_signature_names_them_with_their_defaults(self) -> None:
        parameters = inspect.signature(tokpress.build).parameters
        own = ["inputs", "tokenizer", "out", "overwrite", "seal", "executor", "address", "reporter", "progress"]
        assert list(parameters)[: len(own)] == own
        defaults = {name: parameter.default for name, parameter in list(parameters.items())[len(own) :]}
        assert defaults == {o.name: None if o.of_chats is not None else o.default for o in OPTIONS}
