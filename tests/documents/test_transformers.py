"""Chats give the ids and the masks of `transformers`, whatever is said in them.

Where they differ a token is cut by the border of an answer; docs/supervised.md says how, and it is shown here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import tokpress

from .chats import STYLES, TOOLS, Style, conversations, make_style
from .shaping import Shape, masked, shape

many = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
LINES = """
{% for message in messages %}
    {% if message.role == 'assistant' %}
        {% generation %}
        <|im_start|>{{ message.content }}<|im_end|>
        {% endgeneration %}
    {% else %}
        {{ message.content }}
    {% endif %}
{% endfor %}
"""
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

    def test_for_a_template_with_blocks_on_lines_of_their_own(self, tmp_path: Path) -> None:
        style = make_style(tmp_path, "chatml", LINES)
        chats = [{"messages": [ASKED, {"role": "assistant", "content": text}]} for text in ("Gut.", "", " \n x")]
        check(style, shape(style.directory, messages_field="messages", keep_empty_loss=True), chats)

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


class TestDifferences:
    """Each of them a token that the border of an answer cuts."""

    def masks(self, style: Style, content: str) -> tuple[list[int], list[int]]:
        chat = {"messages": [ASKED, {"role": "assistant", "content": content}]}
        ids, ours = masked(shape(style.directory, messages_field="messages", keep_empty_loss=True)([chat])[0], 0)
        assert ids == style.expected(chat)[0]
        return ours, style.expected(chat)[1]

    def test_they_learn_the_token_that_begins_before_an_answer(self, tmp_path: Path) -> None:
        ours, theirs = self.masks(make_style(tmp_path, "chatml"), "\n\nnewlines first")
        assert sum(theirs) - sum(ours) == 1
        assert theirs.index(1) == ours.index(1) - 1

    def test_they_do_not_learn_all_tokens_of_an_answer_s_last_character(self, tmp_path: Path) -> None:
        bare = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>{% endfor %}"
        ours, theirs = self.masks(make_style(tmp_path, "chatml", bare), "x\u2603")  # three bytes, three tokens
        assert sum(ours) - sum(theirs) == 2

    def test_they_give_up_on_a_hidden_space(self, tmp_path: Path) -> None:
        style = make_style(tmp_path, "chatml")
        path = style.directory / "tokenizer.json"
        data = json.loads(path.read_text())
        data["post_processor"]["trim_offsets"] = True
        path.write_text(json.dumps(data))
        theirs = Style(style.directory, PreTrainedTokenizerFast(tokenizer_file=str(path)))
        theirs.theirs.chat_template = style.theirs.chat_template
        ours, hidden = self.masks(theirs, " x")
        assert sum(hidden) == 0
        assert ours == style.expected({"messages": [ASKED, {"role": "assistant", "content": " x"}]})[1]
