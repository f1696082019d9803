"""What the assistant says in a rendered chat, and which parts of it are left out.

In: a chat, its template and the text that this made of it. Out: spans of characters. Where a template has no
`{% generation %}` blocks an answer is what stands there beyond the prompt that the template itself puts before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokpress.documents.base import BadRecord
from tokpress.documents.sandbox import SandboxedTemplate
from tokpress.records import BAD_CHAT

Span = tuple[int, int]
# How models mark them: the first token of a part, and its last; None: it goes on to the end of the answer.
THINKING = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
TOOL_CALLS = (
    ("<tool_call>", "</tool_call>"),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ("<|python_tag|>", None),
    ("[TOOL_CALLS]", None),
)


def assistant_turns(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    return [turn for turn, message in enumerate(messages) if message.get("role") == "assistant"]


def find_answers(
    template: SandboxedTemplate, values: Mapping[str, Any], text: str, chars: int, turns: Iterable[int]
) -> list[Span]:
    """Those of these turns, found by rendering the chat up to each of them, without and with it."""
    messages = values["messages"]
    spans = []
    for turn in turns:
        before, _ = template.render({**values, "messages": messages[:turn], "add_generation_prompt": True}, chars)
        upto = text
        if turn + 1 < len(messages):
            upto, _ = template.render(
                {**values, "messages": messages[: turn + 1], "add_generation_prompt": False}, chars
            )
        if not (text.startswith(upto) and upto.startswith(before)):
            raise BadRecord(
                BAD_CHAT,
                f"the chat template has no {{% generation %}} block, and changes what stands before message {turn} once "
                "that is there: what the assistant says cannot be told. Make a sequence of each turn with --per-turn, learn "
                "the last answer alone with --loss last, or everything with --loss all; or put the block around what is "
                "said and give the template with --chat-template",
            )
        spans.append((len(before), len(upto)))
    return spans


def leave_out(text: str, spans: Iterable[Span], marks: Sequence[tuple[str, str | None]]) -> list[Span]:
    """The spans without the marked parts of them. A part may have been opened by the prompt."""
    left: list[Span] = []
    for start, stop in spans:
        place = start
        for begin, end in _marked(text, start, stop, marks):
            left.append((place, begin))
            place = end
        left.append((place, stop))
    return [(start, stop) for start, stop in left if start < stop]


def _marked(text: str, start: int, stop: int, marks: Sequence[tuple[str, str | None]]) -> list[Span]:
    said, prompt = text[start:stop], text[:start].rstrip()
    found = []
    for first, last in marks:
        end = r"\Z" if last is None else rf"(?:{re.escape(last)}|\Z)"
        begin = rf"(?:{re.escape(first)}|\A)" if prompt.endswith(first) else re.escape(first)
        matches = re.finditer(rf"{begin}.*?{end}", said, re.DOTALL)
        found += [(start + match.start(), start + match.end()) for match in matches]
    found.sort()
    return [span for i, span in enumerate(found) if not i or span[0] >= found[i - 1][1]]
