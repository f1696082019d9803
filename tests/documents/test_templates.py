"""What the readers take out of a record for a template and for the splits."""

from __future__ import annotations

from typing import Any

import pytest

from tokpress.documents.templates import reading
from tokpress.options import build_config

CHATS = {"messages_field": "m", "tools_field": "tools"}
PROMPTS = {"prompt_field": "q", "completion_field": "a"}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ()),
        ({"keep": ["id", "url"], "split_key": "id"}, ("id", "url")),
        ({"split_key": "text"}, ()),  # it is read already, and cannot be kept beside itself
        ({"split_key": "user"}, ("user",)),
        (PROMPTS | {"split_key": "q"}, ()),
        (PROMPTS | {"split_key": "a", "keep": ["id"]}, ("id",)),
        (PROMPTS | {"split_key": "text"}, ("text",)),
        (CHATS | {"split_field": "part"}, ("part", "tools")),
    ],
)
def test_what_is_taken_along(options: dict[str, Any], kept: tuple[str, ...]) -> None:
    if "split_key" in options:
        options = options | {"val_fraction": 0.5}
    assert reading(build_config("bytes", options)).keep == kept  # type: ignore[arg-type]
