"""The docs speak of what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tokpress.run.events import Event

ROOT = Path(__file__).parent.parent
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text())))
LINKS = [
    (page, target)
    for page in [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_guarantee_s_test_exists(file: str, name: str) -> None:
    source = (ROOT / file).read_text()
    assert not name or re.search(rf"(def|class) {name}\b", source)


@pytest.mark.parametrize(("page", "target"), LINKS, ids=lambda value: Path(value).name)
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


@pytest.mark.parametrize("event", get_args(Event), ids=lambda event: event.__name__)
def test_an_event_is_explained_with_all_its_fields(event: type[msgspec.Struct]) -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    [row] = re.findall(rf"(?m)^\| `{event.__struct_config__.tag}` \|.*$", page)
    assert {name for name in event.__struct_fields__ if f"`{name}`" not in row} <= {"time"}
