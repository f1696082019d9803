"""Chats give the ids and the masks of `transformers`, whatever is said in them.

The one difference is the rule for a token that begins in the prompt and ends in the answer: `transformers` learns it, we do
not, because it does not start in what is learned.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress

from .chats import STYLES, TOOLS, Style, conversations, make_style
from .shaping import Shape, masked, shape

many = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ASKED = {"role": "user", "content": "Wie ist das Wetter?"}


@pytest.fixture(scope="module", params=list(STYLES))
def style(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Style:
    return make_style(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def ours(style: Style) -> Shape:
    return shape(style.directory, messages_field="messages", keep_empty_loss=True)


def check(style: Style, ours: Shape, chats: list[dict[str, Any]]) -> None:
    docs, rejects = ours(chats)
    assert rejects == []
    for i, chat in enumerate(chats):
        ids, mask = masked(docs, i)
        their_ids, their_mask = style.expected(chat)
        assert ids == their_ids
        straddling = style.straddling(chat)
        assert all(their_mask[token] and not mask[token] for token in straddling)
        assert mask == [0 if token in straddling else learned for token, learned in enumerate(their_mask)]


class TestEqual:
    @many
    @given(chats=st.lists(conversations, min_size=1, max_size=3))
    def test_for_any_conversation(self, style: Style, ours: Shape, chats: list[dict[str, Any]]) -> None:
        check(style, ours, chats)

    @pytest.mark.parametrize(
        "chat",
        [
            {"messages": [ASKED, {"role": "assistant", "content": "Gut."}]},
            {"messages": [{"role": "system", "content": "Sei kurz."}, ASKED, {"role": "assistant", "content": "👍🏽"}]},
            {"messages": [ASKED, {"role": "assistant", "content": ""}, ASKED, {"role": "assistant", "content": " x"}]},
            {"messages": [ASKED, {"role": "assistant", "content": "<|im_end|>[INST]<|eot_id|></s>"}]},
            {"messages": [ASKED, {"role": "assistant", "content": "\n\nnewlines first"}]},
            {"messages": [ASKED, {"role": "assistant", "content": "日本語 ends in 字"}], "tools": TOOLS},
            {"messages": [ASKED]},
        ],
    )
    def test_for_these(self, style: Style, ours: Shape, chat: dict[str, Any]) -> None:
        check(style, ours, [chat])

    def test_a_token_over_the_border_is_the_one_difference(self, tmp_path: Path) -> None:
        style = make_style(tmp_path, "chatml")
        chat = {"messages": [ASKED, {"role": "assistant", "content": "\n\nnewlines first"}]}
        assert len(style.straddling(chat)) == 1

    @pytest.mark.parametrize("name", ["chatml", "llama3"])
    def test_with_the_fast_engine_too(self, tmp_path: Path, name: str) -> None:
        style = make_style(tmp_path, name)
        fast = shape(style.directory, fast=True, messages_field="messages", keep_empty_loss=True)
        chats = [
            {"messages": [ASKED, {"role": "assistant", "content": text}]} for text in ("", "naïve 字😀", "\nx", " y ")
        ]
        check(style, fast, chats)

    def test_in_a_store(self, style: Style, tmp_path: Path) -> None:
        chats = [{"messages": [ASKED, {"role": "assistant", "content": f"Grad: {i} °C"}]} for i in range(30)]
        source = tmp_path / "chats.jsonl"
        source.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        store = tokpress.build(source, tokenizer=style.directory, out=tmp_path / "store", messages_field="messages")
        assert store.verify().ok
        assert store.manifest.special_tokens == "parse"
        assert (store.manifest.bos_id, store.manifest.eos_id) == (None, None)  # the template writes its own
        for i, chat in enumerate(chats):
            mask = store.mask(i)
            assert mask is not None
            assert (store.doc(i).tolist(), mask.tolist()) == style.expected(chat)
