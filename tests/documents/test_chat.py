"""What of a chat is in the loss, where templates come from, and what is wrong with chats that are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokpress
from tokpress.errors import TokenizerError, UsageError
from tokpress.records import BAD_CHAT, MISSING_FIELD

from .chats import CHATML, LLAMA3, Style, make_style
from .shaping import masked, rendered, shape

CHAT = [
    {"role": "user", "content": "Hallo"},
    {"role": "assistant", "content": "Grüße"},
    {"role": "user", "content": "Und?"},
    {"role": "assistant", "content": "Nichts."},
]
LEARNED = ["Grüße<|im_end|>", "Nichts.<|im_end|>"]


def without_blocks(template: str) -> str:
    return template.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")


def learned(style: Path, messages: list[dict[str, Any]] = CHAT, **options: Any) -> list[str]:
    made = rendered(style, [{"messages": messages}], messages_field="messages", **options)
    assert made.spans is not None
    text: bytes = made.batch.text[0].as_py().encode()
    return [text[a:b].decode() for a, b in zip(made.spans.starts, made.spans.stops, strict=True)]


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Style:
    return make_style(tmp_path_factory.mktemp("chatml"), "chatml")


class TestLoss:
    def test_is_on_what_the_assistant_says(self, chatml: Style) -> None:
        assert learned(chatml.directory) == LEARNED

    def test_last_is_its_last_answer(self, chatml: Style) -> None:
        assert learned(chatml.directory, loss="last") == LEARNED[1:]

    def test_all_is_everything(self, chatml: Style) -> None:
        [everything] = learned(chatml.directory, loss="all")
        assert everything.startswith("<|im_start|>user\nHallo")
        docs, _ = shape(chatml.directory, messages_field="messages", loss="all")([{"messages": CHAT}])
        assert set(masked(docs, 0)[1]) == {1}

    @pytest.mark.parametrize(("name", "template"), [("chatml", CHATML), ("llama3", LLAMA3)])
    def test_without_blocks_is_found_by_rendering_up_to_each_answer(
        self, tmp_path: Path, name: str, template: str
    ) -> None:
        with_blocks = make_style(tmp_path / "a", name)
        bare = make_style(tmp_path / "b", name, without_blocks(template))
        ends = {"chatml": "\n", "llama3": ""}[name]  # what ChatML writes after an answer is a part of it then
        assert learned(bare.directory) == [text + ends for text in learned(with_blocks.directory)]
        assert learned(bare.directory, loss="last") == [learned(bare.directory)[-1]]

    def test_a_template_that_rewrites_what_was_said_is_told(self, tmp_path: Path) -> None:
        template = "{% for m in messages %}{{ m.content if loop.last else '' }};{% endfor %}"
        style = make_style(tmp_path, "chatml", template)
        _, [reject] = shape(style.directory, messages_field="messages")([{"messages": CHAT}])
        assert reject.reason == BAD_CHAT
        assert "--loss all" in reject.detail
        docs, rejects = shape(style.directory, messages_field="messages", loss="all")([{"messages": CHAT}])
        assert (len(docs), rejects) == (1, [])

    def test_a_prompt_that_the_answer_does_not_begin_with_is_told(self, tmp_path: Path) -> None:
        """A template that has the assistant begin to think, and forgets that once it has answered: the prompt is longer than
        what stands before the answer, and the answer's first words would not be in the loss."""
        template = (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
        )
        style = make_style(tmp_path, "chatml", template)
        docs, [reject] = shape(style.directory, messages_field="messages")([{"messages": CHAT}])
        assert (len(docs), reject.reason) == (0, BAD_CHAT)
        assert "changes what stands before message 1" in reject.detail
        thinking = [CHAT[0], {"role": "assistant", "content": "<think>\nhm</think>Ja"}]
        assert learned(style.directory, thinking) == ["hm</think>Ja<|im_end|>\n"]


class TestTemplates:
    def test_another_one_than_the_tokenizer_s(self, chatml: Style, tmp_path: Path) -> None:
        (tmp_path / "t.jinja").write_text(
            "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        )
        assert learned(chatml.directory, chat_template=tmp_path / "t.jinja") == [message["content"] for message in CHAT]

    def test_chat_template_jinja_goes_before_the_config(self, tmp_path: Path) -> None:
        style = make_style(tmp_path, "chatml")
        (style.directory / "chat_template.jinja").write_text("{% generation %}{{ eos_token }}{% endgeneration %}")
        assert learned(style.directory) == ["<|im_end|>"]

    def test_one_of_several_by_name(self, tmp_path: Path) -> None:
        style = make_style(tmp_path, "chatml")
        config = json.loads((style.directory / "tokenizer_config.json").read_text())
        one, two = ("{% generation %}" + text + "{% endgeneration %}" for text in ("plain", "with tools"))
        config["chat_template"] = [{"name": "tool_use", "template": two}, {"name": "default", "template": one}]
        (style.directory / "tokenizer_config.json").write_text(json.dumps(config))
        assert learned(style.directory) == ["plain"]
        records = [{"messages": CHAT, "tools": [{}]}]
        made = rendered(style.directory, records, messages_field="messages")
        assert made.batch.text.to_pylist() == ["with tools"]

    def test_the_config_has_the_last_word_about_the_special_tokens(self, tmp_path: Path) -> None:
        """As it has with `transformers`, and about the EOS of plain text."""
        style = make_style(tmp_path, "chatml", "{% generation %}{{ eos_token }}{{ pad_token }}{% endgeneration %}")
        names = {"eos_token": "<|endoftext|>", "pad_token": {"content": "<|im_start|>"}}
        (style.directory / "special_tokens_map.json").write_text(json.dumps(names))
        assert learned(style.directory) == ["<|im_end|><|im_start|>"]

    def test_none_at_all_is_an_error(self, bpe: Path) -> None:
        with pytest.raises(TokenizerError, match="--chat-template FILE"):
            shape(bpe, messages_field="messages")

    def test_the_tokens_of_a_sentencepiece_model_are_known(self, tmp_path: Path) -> None:
        source = tmp_path / "t.jsonl"
        source.write_text("".join(json.dumps({"text": f"words and numbers {i}"}) + "\n" for i in range(300)))
        model = tokpress.train_tokenizer(source, out=tmp_path / "spm.model", vocab_size=300, model="sp-unigram")
        (tmp_path / "t.jinja").write_text(
            "{{ bos_token }}{% generation %}{{ messages[0].content }}{{ eos_token }}{% endgeneration %}"
        )
        run = shape(model, messages_field="m", chat_template=tmp_path / "t.jinja")
        docs, _ = run([{"m": [{"content": "numbers"}]}])
        ids, mask = masked(docs, 0)
        assert (ids[0], ids[-1], mask[0], set(mask[1:])) == (1, 2, 0, {1})


class TestChats:
    @pytest.mark.parametrize(
        ("messages", "detail"),
        [
            ("hello", "not JSON"),
            ([], "no messages"),
            ({"role": "user"}, "no list of objects"),
            (["hello"], "no list of objects"),
            ([{"role": "user", "content": 5}], "TypeError"),
        ],
    )
    def test_that_cannot_be_rendered_are_rejected_alone(self, chatml: Style, messages: Any, detail: str) -> None:
        records = [{"messages": CHAT}, {"messages": messages}, {"messages": CHAT}]
        docs, [reject] = shape(chatml.directory, messages_field="messages")(records)
        assert (len(docs), reject.reason, reject.position) == (2, BAD_CHAT, 1)
        assert detail in reject.detail

    @pytest.mark.parametrize(("tools", "detail"), [({"name": "x"}, "no list"), ("[", "not JSON")])
    def test_with_tools_that_are_none_are_rejected_alone(self, chatml: Style, tools: Any, detail: str) -> None:
        records = [{"messages": CHAT}, {"messages": CHAT, "tools": tools}, {"messages": CHAT, "tools": None}]
        docs, [reject] = shape(chatml.directory, messages_field="messages")(records)
        assert (len(docs), reject.reason, reject.position) == (2, BAD_CHAT, 1)
        assert detail in reject.detail

    def test_as_a_string_of_json(self, chatml: Style) -> None:
        run = shape(chatml.directory, messages_field="messages")
        plain, _ = run([{"messages": CHAT, "tools": [{"name": "x"}]}])
        written, _ = run([{"messages": json.dumps(CHAT), "tools": json.dumps([{"name": "x"}])}])
        assert masked(plain, 0) == masked(written, 0)

    def test_from_tables(self, chatml: Style, tmp_path: Path) -> None:
        """A table gives every message the fields of all of them: those that are null are none."""
        call = [{"function": {"name": "f"}}]
        chats = [CHAT, [CHAT[0], {"role": "assistant", "content": "", "tool_calls": call}]]
        pq.write_table(pa.table({"messages": chats, "id": [1, 2]}), tmp_path / "a.parquet")
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
        stores = [
            tokpress.build(
                tmp_path / name, tokenizer=chatml.directory, out=tmp_path / f"{name}.out", messages_field="messages"
            )
            for name in ("a.parquet", "a.jsonl")
        ]
        assert [doc.tolist() for doc in stores[0]] == [doc.tolist() for doc in stores[1]]

    def test_missing_messages_say_where_to_look(self, chatml: Style, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"x": 1}\n{"messages": null}\n' + json.dumps({"messages": CHAT}))
        store = tokpress.build(
            tmp_path / "a.jsonl", tokenizer=chatml.directory, out=tmp_path / "s", messages_field="messages"
        )
        assert store.manifest.rejects == {MISSING_FIELD: 2}
        assert "--messages-field" in next((store.path / "rejects").iterdir()).read_text()

    def test_literals_of_special_tokens_are_parsed_unless_asked_otherwise(self, chatml: Style) -> None:
        end = chatml.theirs.convert_tokens_to_ids("<|im_end|>")
        records = [{"messages": [{"role": "user", "content": "a<|im_end|>b"}, CHAT[1]]}]
        parsed, _ = shape(chatml.directory, messages_field="messages")(records)
        assert masked(parsed, 0)[0].count(end) == 3
        text, _ = shape(chatml.directory, messages_field="messages", special_tokens="text")(records)
        assert masked(text, 0)[0].count(end) == 0

    def test_options_of_chats_need_chats(self) -> None:
        from tokpress.options import build_config
        from tokpress.run.coordinator import check_options

        with pytest.raises(UsageError, match="--messages-field messages"):
            check_options(build_config("bytes", {"loss": "all"}))
