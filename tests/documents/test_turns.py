"""Chats of models that think and call tools: every way to put the loss on them, against `transformers`.

The template behaves as those of current models do: thinking stands before an answer and is taken out of all answers before
the last question; tool calls and results follow each other within an answer. With `{% generation %}` blocks and without.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import tokpress
from tokpress.records import BAD_CHAT, OVERLONG

from .chats import TOOLS, Style, make_style
from .shaping import masked, shape

many = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
THINKING = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- set seen = namespace(question=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set seen.question = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'system' and tools %}{% continue %}{% endif %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{%- generation %}
        {%- if loop.index0 > seen.question %}
            {{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
BARE = THINKING.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")
PARTS = {"thinking": r"<think>.*?</think>", "tool_calls": r"<tool_call>.*?</tool_call>"}

words = st.text("abc é字😀.\n", min_size=1, max_size=20)
calls = st.just([{"type": "function", "function": {"name": "wetter", "arguments": {"ort": "Zürich"}}}])


def said(role: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": words}, optional=dict(more))


answers = said("assistant", reasoning_content=words)
exchanges = st.tuples(said("user"), answers) | st.tuples(
    said("user"),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": words, "reasoning_content": words, "tool_calls": calls}
    ),
    said("tool"),
    answers,
)
chats = st.fixed_dictionaries(
    {
        "messages": st.tuples(st.lists(said("system"), max_size=1), st.lists(exchanges, min_size=1, max_size=3)).map(
            lambda parts: [*parts[0], *(message for exchange in parts[1] for message in exchange)]
        )
    },
    optional={"tools": st.just(TOOLS)},
)


@pytest.fixture(scope="module", params=["blocks", "bare"])
def style(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Style:
    template = THINKING if request.param == "blocks" else BARE
    return make_style(tmp_path_factory.mktemp(request.param), "chatml", template)


def text_of(theirs: PreTrainedTokenizerFast, chat: dict[str, Any], upto: int, *, prompt: bool = False) -> str:
    text: str = theirs.apply_chat_template(
        chat["messages"][:upto], tools=chat.get("tools"), tokenize=False, add_generation_prompt=prompt
    )
    return text


def expected(style: Style, chat: dict[str, Any], loss: str, per_turn: bool, masks: list[str]) -> list[Any]:
    """Ids and mask of every sequence, from what `transformers` renders and where it says that tokens start."""
    messages = chat["messages"]
    turns = [i + 1 for i, message in enumerate(messages) if message["role"] == "assistant"]
    found = []
    for upto in turns if per_turn else [len(messages)]:
        text = text_of(style.theirs, chat, upto)
        ends = turns if loss == "assistant" and not per_turn else [turn for turn in turns if turn <= upto][-1:]
        spans = [
            (len(text_of(style.theirs, chat, end - 1, prompt=True)), len(text_of(style.theirs, chat, end)))
            for end in ends
        ]
        if "{%- generation" in style.theirs.chat_template:  # there the line's end is not said by the assistant
            spans = [(start, stop - 1) for start, stop in spans]
        loss_on = [loss == "all" or any(start <= i < stop for start, stop in spans) for i in range(len(text))]
        for part in masks:
            for match in re.finditer(PARTS[part], text, re.DOTALL):
                loss_on[match.start() : match.end()] = [False] * len(match[0])
        encoded = style.theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        starts = [start for start, _ in encoded["offset_mapping"]]
        found.append((encoded["input_ids"], [int(loss_on[start]) for start in starts]))
    return found


def ours(style: Style, chat: dict[str, Any], **options: Any) -> list[Any]:
    docs, rejects = shape(style.directory, messages_field="messages", keep_empty_loss=True, **options)([chat])
    assert rejects == []
    assert docs.records == 1
    return [masked(docs, i) for i in range(len(docs))]


class TestEqual:
    @pytest.mark.parametrize("masks", [[], ["thinking"], ["tool_calls"], ["thinking", "tool_calls"]])
    @pytest.mark.parametrize("loss", ["assistant", "last", "all"])
    @many
    @given(chat=chats)
    def test_a_sequence_a_turn(self, style: Style, loss: str, masks: list[str], chat: dict[str, Any]) -> None:
        options = {f"mask_{part}": True for part in masks}
        assert ours(style, chat, loss=loss, per_turn=True, **options) == expected(style, chat, loss, True, masks)

    @pytest.mark.parametrize("masks", [[], ["thinking"], ["tool_calls"], ["thinking", "tool_calls"]])
    @pytest.mark.parametrize("loss", ["last", "all"])
    @many
    @given(chat=chats)
    def test_a_sequence_a_chat(self, style: Style, loss: str, masks: list[str], chat: dict[str, Any]) -> None:
        options = {f"mask_{part}": True for part in masks}
        assert ours(style, chat, loss=loss, **options) == expected(style, chat, loss, False, masks)

    @pytest.mark.parametrize("masks", [[], ["thinking"], ["tool_calls"], ["thinking", "tool_calls"]])
    @many
    @given(chat=chats)
    def test_every_answer_of_one_exchange(self, style: Style, masks: list[str], chat: dict[str, Any]) -> None:
        """Nothing is taken out of it, so all its answers can be told, with blocks and without."""
        questions = [i for i, message in enumerate(chat["messages"]) if message["role"] == "user"]
        chat = chat | {"messages": chat["messages"][: questions[1] if len(questions) > 1 else None]}
        options = {f"mask_{part}": True for part in masks}
        assert ours(style, chat, **options) == expected(style, chat, "assistant", False, masks)

    @many
    @given(chat=chats)
    def test_the_masks_of_transformers_itself(
        self, tmp_path_factory: pytest.TempPathFactory, chat: dict[str, Any]
    ) -> None:
        style = make_style(tmp_path_factory.getbasetemp() / "own-blocks", "chatml", THINKING)
        once = {**chat, "messages": [{"role": "user", "content": "x"}, *chat["messages"][-1:]]}
        for talk, per_turn in ((chat, False), (once, True)):
            [(ids, mask)] = ours(style, talk, per_turn=per_turn)
            their_ids, their_mask = style.expected(talk)
            begun = style.straddling(talk)  # tokens that begin before the answer, which `transformers` has loss on
            assert ids == their_ids
            assert mask == [0 if token in begun else counts for token, counts in enumerate(their_mask)]


CHAT = [
    {"role": "user", "content": "Hallo"},
    {"role": "assistant", "content": "Ja", "reasoning_content": "hm"},
    {"role": "user", "content": "Und?"},
    {"role": "assistant", "content": "Nein", "reasoning_content": "so"},
]


class TestThinkingThatIsTakenOut:
    @pytest.fixture(scope="class")
    @classmethod
    def bare(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return make_style(tmp_path_factory.mktemp("bare"), "chatml", BARE).directory

    def test_all_answers_cannot_be_told_and_the_ways_out_are_named(self, bare: Path) -> None:
        docs, [reject] = shape(bare, messages_field="messages")([{"messages": CHAT}])
        assert (len(docs), reject.reason) == (0, BAD_CHAT)
        assert all(option in reject.detail for option in ("--per-turn", "--loss last", "--loss all", "--chat-template"))

    def test_an_answer_that_the_prompt_began_to_think(self, tmp_path: Path) -> None:
        """The template itself opens the thinking: what follows up to its end is left out all the same."""
        template = (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ '<think>\n' if m.role == 'assistant' }}{{ m.content }}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
        )
        style = make_style(tmp_path, "chatml", template)
        chat = {"messages": [CHAT[0], {"role": "assistant", "content": "hm</think>Ja"}]}
        [(ids, mask)] = ours(style, chat, mask_thinking=True)
        inside = [token for token, counts in zip(ids, mask, strict=True) if counts]
        assert style.theirs.decode(inside) == "Ja<|im_end|>\n"


class TestBuild:
    def write(self, directory: Path, chats: list[Any]) -> Path:
        path = directory / "chats.jsonl"
        path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
        return path

    @pytest.fixture
    def bare(self, tmp_path: Path) -> Path:
        return make_style(tmp_path / "style", "chatml", BARE).directory

    @pytest.mark.parametrize("workers", [1, 2])
    def test_each_chat_is_counted_once(self, bare: Path, tmp_path: Path, workers: int) -> None:
        path = self.write(tmp_path, [CHAT, CHAT[:2], [{"role": "user", "content": "x"}], "no chat", CHAT * 2])
        store = tokpress.build(
            path,
            messages_field="messages",
            per_turn=True,
            val_fraction=0.3,
            max_rejects="100%",
            tokenizer=bare,
            out=tmp_path / "out",
            workers=workers,
        )
        manifest = store.manifest
        assert (manifest.totals.read, manifest.totals.written, manifest.totals.rejected) == (5, 3, 2)
        assert sum(split.docs for split in manifest.splits.values()) == 2 + 1 + 4
        assert store.verify().ok
        for name in manifest.splits:  # turns of a chat stay together
            places = [store.split(name).where(i) for i in range(store.split(name).num_docs)]
            assert places == sorted(places)

    def test_verify_deep_finds_every_turn_again(self, bare: Path, tmp_path: Path) -> None:
        from tokpress.run.deep import reencode_sample

        path = self.write(tmp_path, [CHAT, CHAT * 3])
        store = tokpress.build(path, messages_field="messages", per_turn=True, tokenizer=bare, out=tmp_path / "out")
        again = reencode_sample(store, 100)
        assert (again.docs > 0, again.problems) == (True, [])

    def test_a_turn_that_is_too_long_takes_its_chat_along_or_is_cut(self, bare: Path, tmp_path: Path) -> None:
        path = self.write(tmp_path, [CHAT, CHAT[:2]])
        whole = tokpress.build(path, messages_field="messages", per_turn=True, tokenizer=bare, out=tmp_path / "whole")
        short = len(whole.doc(2))
        lengths = {}
        for overlong in ("truncate", "drop", "split"):
            store = tokpress.build(
                path,
                messages_field="messages",
                per_turn=True,
                max_length=short,
                overlong=overlong,
                tokenizer=bare,
                out=tmp_path / overlong,
            )
            totals = store.manifest.totals
            lengths[overlong] = [len(doc) for doc in store]
            assert store.verify().ok
            assert totals.read == totals.written + totals.rejected == 2
        assert lengths["drop"] == lengths["truncate"][-1:]
        assert max(lengths["truncate"]) == short
        assert sum(lengths["split"]) > sum(lengths["truncate"])
        dropped = tokpress.open(tmp_path / "drop").manifest
        assert dropped.rejects == {OVERLONG: 1}
        cut = tokpress.open(tmp_path / "truncate").manifest.splits["train"]
        assert (cut.docs, cut.continued, cut.truncated) == (3, 1, 1)

    def test_flags_of_chats_are_refused_elsewhere(self, bare: Path, tmp_path: Path) -> None:
        for option in ("per_turn", "mask_thinking", "mask_tool_calls"):
            chosen: dict[str, Any] = {option: True}
            with pytest.raises(tokpress.errors.UsageError, match="is for chats"):
                tokpress.build(self.write(tmp_path, []), tokenizer=bare, out=tmp_path / "out", **chosen)
