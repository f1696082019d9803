"""Chat templates in three styles, tokenizers to go with them, conversations, and what `transformers` says of these."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from conftest import make_texts
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from tokpress.engines.tiktoken import PATTERNS

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
    {{- '# Tools\\n' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first and tools %}{% continue %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content or '' }}
            {%- for call in message.tool_calls or [] %}
                {{- '\\n<tool_call>' + (call.function | tojson) + '</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{- message['content'] | trim }}{%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}
{{- '<|eot_id|>' }}{%- endgeneration %}
{%- else %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
MISTRAL = """\
{{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = message.content + '\\n\\n' %}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] ' + message.content + '[/TOOL_RESULTS]' }}
    {%- else %}
        {%- if loop.last and tools %}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST] ' + ns.system + message.content + '[/INST]' }}
        {%- set ns.system = '' %}
    {%- endif %}
{%- endfor %}
"""
STYLES = {
    "chatml": (CHATML, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], None, "<|im_end|>"),
    "llama3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
        "<|begin_of_text|>",
        "<|eot_id|>",
    ),
    "mistral": (
        MISTRAL,
        [
            "<s>",
            "</s>",
            "[INST]",
            "[/INST]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
        ],
        "<s>",
        "</s>",
    ),
}
TOOLS = [
    {"type": "function", "function": {"name": "wetter", "parameters": {"ort": {"type": "string", "title": "Größe"}}}}
]

characters = st.characters(exclude_categories=["Cs", "Cn"], max_codepoint=0x1F9FF) | st.sampled_from(
    " \n\t<|>[]é字😀👍🏽"
)
contents = st.one_of(
    st.text(characters, max_size=30),
    st.sampled_from(["", " ", "\n", "<|im_end|>", "[INST] no", "<|eot_id|>x", "Hello, world.", "naïve 日本 …"]),
)
tool_calls = st.just([{"type": "function", "function": {"name": "wetter", "arguments": {"ort": "Zürich"}}}])


def _message(role: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": contents})


_exchange = st.tuples(_message("user"), _message("assistant")) | st.tuples(
    _message("user"),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": contents, "tool_calls": tool_calls}),
    _message("tool"),
    _message("assistant"),
)
conversations = st.fixed_dictionaries(
    {
        "messages": st.tuples(
            st.lists(_message("system"), max_size=1),
            st.lists(_exchange, min_size=1, max_size=3).map(
                lambda turns: [message for turn in turns for message in turn]
            ),
            st.lists(_message("user"), max_size=1),
        ).map(lambda parts: [message for part in parts for message in part])
    },
    optional={"tools": st.just(TOOLS)},
)


@dataclass(frozen=True)
class Style:
    """A tokenizer with its chat template, as files and as `transformers` loads it."""

    directory: Path
    theirs: PreTrainedTokenizerFast

    def expected(self, chat: dict[str, Any]) -> tuple[list[int], list[int]]:
        """Ids and mask of `transformers`."""
        out = self._apply(chat, return_dict=True, return_assistant_tokens_mask=True)
        return list(out["input_ids"]), list(out["assistant_masks"])

    def straddling(self, chat: dict[str, Any]) -> set[int]:
        """Tokens that begin before what the assistant says and end in it."""
        _, [spans] = render_jinja_template(
            [chat["messages"]],
            tools=chat.get("tools"),
            chat_template=self.theirs.chat_template,
            return_assistant_tokens_mask=True,
            **self.theirs.special_tokens_map,
        )
        text = self._apply(chat, tokenize=False)
        offsets = self.theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return {i for i, (start, end) in enumerate(offsets) if any(start < begin < end for begin, _ in spans)}

    def _apply(self, chat: dict[str, Any], **options: Any) -> Any:
        return self.theirs.apply_chat_template(chat["messages"], tools=chat.get("tools"), **options)


@cache
def trained(specials: tuple[str, ...], kind: str) -> bytes:
    """A small tokenizer.json: byte-level as Llama 3's and Qwen's are, or with metaspace and byte fallback as Mistral's."""
    if kind == "bytes":
        tokenizer = tokenizers.Tokenizer(models.BPE())
        split = pre_tokenizers.Split(tokenizers.Regex(PATTERNS["llama3"]), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)  # else it hides where a space starts
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = []
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] if kind != "bytes" else []
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>", *pieces, *specials], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*make_texts(120), " assistant user system\n\n"], trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in ("<unk>", *specials)]
    return json.dumps(data).encode()


def make_style(directory: Path, name: str, template: str | None = None) -> Style:
    own, specials, bos, eos = STYLES[name]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_bytes(trained(tuple(specials), "metaspace" if name == "mistral" else "bytes"))
    config = {"chat_template": template or own, "bos_token": bos, "eos_token": eos}
    (directory / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    names = {key: value for key, value in (("bos_token", bos), ("eos_token", eos)) if value is not None}
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), **names)
    theirs.chat_template = template or own
    return Style(directory, theirs)
