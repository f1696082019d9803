"""Chats: messages rendered with the tokenizer's chat template, as `transformers` renders them.

In: a batch whose text is each record's messages as JSON, its tools beside it. Out: the rendered chats; with `per_turn` each
as the chats up to every answer of it, as a model meets them that is asked turn by turn. What the assistant says is in the
loss: what stands in the template's `{% generation %}` blocks; where it has none, what is there beyond the prompt that the
template itself would have put before that answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokpress.batches import TextBatch
from tokpress.config import LossChoice, TemplateConfig
from tokpress.documents.answers import THINKING, TOOL_CALLS, assistant_turns, find_answers, leave_out
from tokpress.documents.base import BadRecord, Rendered, Template, Text, render_each
from tokpress.documents.sandbox import SandboxedTemplate
from tokpress.errors import TokenizerError
from tokpress.records import BAD_CHAT, Input, TokenizerFiles, TokenizerInfo

_CONFIG, _MAP, _FILE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
_DEFAULT, _WITH_TOOLS = "default", "tool_use"  # names that `transformers` gives to several templates
_JSON = msgspec.json.Decoder()


class ChatTemplate(Template):
    def __init__(
        self, config: TemplateConfig, files: TokenizerFiles, info: TokenizerInfo | None, inputs: Sequence[Input]
    ) -> None:
        self._inputs = inputs
        self._tools_field = config.tools_field
        self._loss: LossChoice = config.loss or "assistant"
        self._per_turn = config.per_turn
        self._left_out = (THINKING if config.mask_thinking else ()) + (TOOL_CALLS if config.mask_tool_calls else ())
        sources = {_DEFAULT: config.chat_template} if config.chat_template is not None else own_templates(files)
        option = "--chat-template" if config.chat_template is not None else "the tokenizer's chat template"
        self._templates = {
            name: SandboxedTemplate(source, option, BAD_CHAT, date=config.date) for name, source in sources.items()
        }
        self._values = special_tokens(files)
        if info is not None:  # what a SentencePiece model or a rank file says of itself
            own = {"bos_token": info.bos_token, "eos_token": info.eos_token}
            self._values = {name: token for name, token in own.items() if token} | self._values

    def render(self, batch: TextBatch, max_bytes: int) -> Rendered:
        names = [] if batch.kept is None else batch.kept.schema.names
        tools = batch.kept.column(self._tools_field) if batch.kept is not None and self._tools_field in names else None

        def render(i: int) -> list[Text]:
            return self._render(batch.text[i].as_py(), None if tools is None else tools[i].as_py())

        return render_each(batch, self._inputs, max_bytes, render)

    def _render(self, data: str, tools_data: str | None) -> list[Text]:
        messages = _decoded(data)
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise BadRecord(BAD_CHAT, "the messages are no list of objects")
        if not messages:
            raise BadRecord(BAD_CHAT, "there are no messages")
        tools = _decoded(tools_data) if tools_data else None
        if tools is not None and not isinstance(tools, list):
            raise BadRecord(BAD_CHAT, "the tools are no list")
        values = self._values | {"messages": messages, "tools": tools, "documents": None}
        template = self._templates.get(_WITH_TOOLS if tools is not None else _DEFAULT, self._templates[_DEFAULT])
        chars = len(data) + len(tools_data or "")
        turns = assistant_turns(messages)
        if not self._per_turn or not turns:
            return [self._text(template, values, chars, self._loss)]
        loss: LossChoice = "all" if self._loss == "all" else "last"
        return [self._text(template, values | {"messages": messages[: turn + 1]}, chars, loss) for turn in turns]

    def _text(self, template: SandboxedTemplate, values: Mapping[str, Any], chars: int, loss: LossChoice) -> Text:
        text, blocks = template.render({**values, "add_generation_prompt": False}, chars)
        if loss == "all":
            spans = [(0, len(text))]
        elif template.has_blocks:
            spans = blocks
        else:
            turns = assistant_turns(values["messages"])
            spans = find_answers(template, values, text, chars, turns[-1:] if loss == "last" else turns)
        spans = [(start, stop) for start, stop in spans if start < stop]
        return text, leave_out(text, spans[-1:] if loss == "last" else spans, self._left_out)


def _decoded(data: str) -> Any:
    """JSON, also where it stands in a string."""
    try:
        value = _JSON.decode(data)
        return _JSON.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRecord(BAD_CHAT, f"not JSON that can be used: {error}") from None


def own_templates(files: TokenizerFiles) -> dict[str, str]:
    """The chat templates that a tokenizer brings, by name."""
    if _FILE in files.files:
        return {_DEFAULT: files.files[_FILE].decode()}
    found = _companion(files, _CONFIG).get("chat_template")
    if isinstance(found, str):
        return {_DEFAULT: found}
    named = {entry["name"]: entry["template"] for entry in found if isinstance(entry, dict)} if found else {}
    if _DEFAULT not in named:
        raise TokenizerError(
            "the tokenizer brings no chat template: neither chat_template.jinja nor tokenizer_config.json beside it has "
            "one. Give one: --chat-template FILE"
        )
    return named


def special_tokens(files: TokenizerFiles) -> dict[str, str]:
    """`bos_token`, `eos_token` and so on, as the tokenizer's companions name them."""
    tokens = {}
    for companion in (_MAP, _CONFIG):  # the latter has the last word
        for name, value in _companion(files, companion).items():
            content = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(content, str):
                tokens[name] = content
    return tokens


def _companion(files: TokenizerFiles, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(files.files.get(name, b"{}"), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise TokenizerError(f"{name} beside the tokenizer is not a JSON object: {error}") from error
