"""Which template a build uses, and what its readers must take out of a record for it.

In: a `BuildConfig`. Out: the `Template`, and the `ReadConfig` that its readers get.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpress.config import BuildConfig, ReadConfig, TemplateConfig
from tokpress.documents.base import Template
from tokpress.documents.plain import PlainText
from tokpress.documents.prompt_completion import PromptCompletion
from tokpress.errors import UsageError
from tokpress.records import Input, TokenizerFiles, TokenizerInfo


def load_template(
    config: TemplateConfig, files: TokenizerFiles, info: TokenizerInfo | None, inputs: Sequence[Input]
) -> Template:
    """`info` as the tokenizer's engine gives it, if it is loaded. Raises UsageError if the template cannot be used."""
    if config.completion_field is not None:
        return PromptCompletion(config.completion_field, config.prompt_separator)
    if not is_code(config):
        return PlainText()
    try:
        from tokpress.documents.chat import ChatTemplate  # and with it Jinja2
        from tokpress.documents.jinja import JinjaTemplate
    except ImportError:
        raise UsageError("chats and templates need Jinja2. Install it: pip install 'tokpress[chat]'") from None
    if config.template is not None:
        return JinjaTemplate(config.template, inputs)
    return ChatTemplate(config, files, info, inputs)


def is_code(config: TemplateConfig) -> bool:
    """Whether text is made by what somebody wrote in Jinja2: it may hang, or take all memory."""
    return config.messages_field is not None or config.template is not None


def reading(config: BuildConfig) -> ReadConfig:
    """How records are read for this template and for the splits: what they need is taken along like a kept field."""
    read, template = config.read, config.template
    taken = [config.split.split_field, config.split.split_key]
    if template.completion_field is not None:
        read = msgspec.structs.replace(
            read, text_field=template.prompt_field or "", required=(template.completion_field,)
        )
    elif template.messages_field is not None:
        read = msgspec.structs.replace(
            read, text_field=template.messages_field, kind="json", optional=(template.tools_field,)
        )
        taken.append(template.tools_field)
    elif template.template is not None:
        read = msgspec.structs.replace(read, kind="record")
    texts = (read.text_field, *read.required) if read.kind == "text" else ()
    beside = dict.fromkeys([*read.keep, *(field for field in taken if field is not None and field not in texts)])
    return msgspec.structs.replace(read, keep=tuple(beside))


def check_template(config: TemplateConfig) -> None:
    """Raises UsageError for options that do not go together."""
    if (config.prompt_field is None) != (config.completion_field is None):
        raise UsageError("--prompt-field and --completion-field go together. Give both.")
    fields = (config.prompt_field, config.messages_field, config.template)
    if sum(field is not None for field in fields) > 1:
        raise UsageError(
            "--prompt-field, --messages-field and --template are three ways to make text. Give one of them."
        )
    if config.prompt_field is not None and config.prompt_field == config.completion_field:
        raise UsageError("--prompt-field and --completion-field name the same field. Name two.")
    if config.messages_field is None:
        chats = {"--chat-template": config.chat_template, "--loss": config.loss, "--date": config.date}
        flags = {"--per-turn": config.per_turn, "--mask-thinking": config.mask_thinking}
        flags |= {"--mask-tool-calls": config.mask_tool_calls}
        given = [option for option, value in chats.items() if value is not None]
        given += [option for option, value in flags.items() if value]
        if given:
            raise UsageError(f"{given[0]} is for chats. Say where they are: --messages-field messages")
    if config.keep_empty_loss and not config.has_mask:
        raise UsageError("--keep-empty-loss is for records of which a part is in the loss. Leave it out.")
