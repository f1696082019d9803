"""Every option of a build, declared once and frozen. Standard library and msgspec only, so that it imports at once.

In: what a user typed or passed to `tokpress.build`. Out: records that the packages take whole; nothing reads a global.
A field's `Option` says what it is to a user. From it come keywords and the plan (`tokpress.options`), the command line and
`--config` (`tokpress.cli`) and the documentation (`tokpress.reference`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from tokpress.declare import INTERNAL, Option, Section
from tokpress.errors import UsageError
from tokpress.records import SpecialTokenPolicy

RecordKind = Literal["text", "json", "record"]
LossChoice = Literal["all", "assistant", "last"]
OverlongChoice = Literal["truncate", "drop", "split"]
BadRecordChoice = Literal["skip", "stop"]
ReceiptChoice = Literal["none", "sampled", "all"]
PinChoice = Literal["none", "cores", "numa"]


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is and where its text stands."""

    dataset: Annotated[
        str | None,
        Option(
            "A dataset of the Hugging Face Hub: one that `tokpress datasets` lists, or any ORG/NAME.",
            "inputs",
            group="Dataset",
            metavar="NAME[:CONFIG][@REV]",
            live=True,
        ),
    ] = None
    split: Annotated[
        str | None,
        Option(
            "Of the dataset. Default: train, or the only one.", "inputs", group="Dataset", metavar="NAME", live=True
        ),
    ] = None
    format: Annotated[
        str | None,
        Option(
            "jsonl, csv, tsv, parquet, arrow, text (a document a file) or lines (a document a line); with .gz .zst "
            ".bz2 .xz, like jsonl.zst. Default: by file name; standard input is jsonl.",
            "inputs",
            metavar="FORMAT",
            live=True,
        ),
    ] = None
    text_field: Annotated[str, Option("Where the text stands; dotted for nested records.", "always", live=True)] = (
        "text"
    )
    separator: Annotated[
        str | None,
        Option(
            r"Plain text: documents stand between these; \n and \t are understood.", "always", kind="escaped", live=True
        ),
    ] = None
    max_doc_bytes: Annotated[
        int, Option("A larger record is rejected without being loaded.", "always", kind="size", at_least=1, live=True)
    ] = 256 * 1024**2
    drop_empty: Annotated[bool, Option("Leave out documents without text.", "always", group="Store", live=True)] = False
    limit: Annotated[
        int | None, Option("Only the first N documents.", "always", group="Store", metavar="N", at_least=0, live=True)
    ] = None
    keep: Annotated[
        tuple[str, ...],
        Option(
            "Keep these fields of each record beside its tokens, like id,url,meta.lang.",
            "always",
            group="Store",
            kind="fields",
            metavar="FIELDS",
        ),
    ] = ()
    # json: the field's value as JSON, whatever it is; record: all of the record as JSON
    kind: Annotated[RecordKind, INTERNAL] = "text"
    required: Annotated[tuple[str, ...], INTERNAL] = ()  # other fields that must hold text; with the kept ones, first
    optional: Annotated[tuple[str, ...], INTERNAL] = ()  # kept fields that a table need not have

    @property
    def field_path(self) -> tuple[str, ...]:
        return () if self.kind == "record" else split_path(self.text_field)


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokenizer, and how it treats a document."""

    spec: str  # file, directory, hub id, name of a tiktoken encoding, or "bytes"
    engine: Annotated[
        str,
        Option(
            "auto: a fast engine if one is proved equal on your own text, else the reference. Or its name, like gigatoken, "
            "native, huggingface, sentencepiece, tiktoken.",
            "no",
            kind="engine",
            live=True,
        ),
    ] = "auto"
    special_tokens: Annotated[
        SpecialTokenPolicy,
        Option(
            "A special token's literal in a document: ordinary text, or parsed to its id. Default: text; of chats, parse.",
            "always",
            live=True,
            of_chats="parse",
        ),
    ] = "text"
    bos: Annotated[bool, Option("Put BOS before each document. Default: no.", "ids", live=True, of_chats=False)] = False
    eos: Annotated[
        bool,
        Option("Put EOS after each document. Default: yes, but not after chats.", "ids", live=True, of_chats=False),
    ] = True
    bos_token: Annotated[str | None, Option("Use this special token as BOS.", "ids", metavar="TOKEN", live=True)] = None
    eos_token: Annotated[str | None, Option("Use this special token as EOS.", "ids", metavar="TOKEN", live=True)] = None
    pattern: Annotated[
        str | None,
        Option(
            "Rank files: gpt2, cl100k, o200k, llama3, qwen2, or the regex.",
            "tokenizer",
            metavar="NAME|REGEX",
            live=True,
        ),
    ] = None
    added_tokens: Annotated[
        dict[str, int],
        Option(
            "Rank files: a special token, repeatable.", "tokenizer", kind="tokens", flag="--special-token", live=True
        ),
    ] = {}


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are cut into files. Part of the plan: the same inputs give the same files."""

    unit_bytes: Annotated[
        int | None,
        Option(
            "Input that a worker takes on at a time. Default: 256MB, less for under 16 GB of input.",
            "always",
            kind="size",
            name="unit_size",
            at_least=1,
        ),
    ] = None
    shard_bytes: Annotated[
        int, Option("Size of a token file.", "always", kind="size", name="shard_size", at_least=1)
    ] = 256 * 10**6


class TemplateConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a record becomes text, what of it is in the loss, and how long it may get. At most one kind of template."""

    prompt_field: Annotated[
        str | None, Option("Where the prompt stands. Only the completion is in the loss.", "always", metavar="FIELD")
    ] = None
    completion_field: Annotated[str | None, Option("Where the completion stands.", "always", metavar="FIELD")] = None
    prompt_separator: Annotated[
        str, Option("Between the two; belongs to the prompt.", "always", kind="escaped", metavar="TEXT")
    ] = ""
    messages_field: Annotated[
        str | None,
        Option(
            "Where a chat's messages stand; rendered with the tokenizer's chat template. BOS and EOS are the template's.",
            "always",
            metavar="FIELD",
        ),
    ] = None
    tools_field: Annotated[str, Option("Its tools, if any.", "always")] = "tools"
    chat_template: Annotated[
        str | None, Option("Another chat template than the tokenizer's.", "always", kind="file")
    ] = None
    date: Annotated[
        str | None, Option("What a chat template is told that today is.", "always", metavar="YYYY-MM-DD")
    ] = None
    template: Annotated[
        str | None,
        Option(
            "Any other record: a Jinja2 template, with {% loss %}...{% endloss %} around what is in the loss.",
            "always",
            kind="file",
        ),
    ] = None
    loss: Annotated[
        LossChoice | None,
        Option(
            "Chats: what is in the loss: all of it, what the assistant says, or its last answer. Default: assistant.",
            "always",
        ),
    ] = None
    per_turn: Annotated[
        bool,
        Option("Chats: a sequence for each answer, the chat up to it; only that answer is in the loss.", "changed"),
    ] = False
    mask_thinking: Annotated[bool, Option("Chats: no loss on <think> parts of answers.", "changed")] = False
    mask_tool_calls: Annotated[bool, Option("Chats: no loss on tool calls in answers.", "changed")] = False
    keep_empty_loss: Annotated[
        bool, Option("Keep records of which nothing is in the loss; else rejects.", "always")
    ] = False
    max_length: Annotated[
        int | None, Option("Tokens of a document, BOS and EOS too.", "always", metavar="N", at_least=1)
    ] = None
    overlong: Annotated[
        OverlongChoice, Option("A longer record: cut it, leave it out, or make several documents of it.", "always")
    ] = "truncate"

    @property
    def is_used(self) -> bool:
        return self != TemplateConfig()

    @property
    def makes_text(self) -> bool:
        """Whether text is made of other fields than `text_field`."""
        return not (self.prompt_field is None and self.messages_field is None and self.template is None)

    @property
    def has_mask(self) -> bool:
        return not (self.completion_field is None and self.messages_field is None and self.template is None)


class SplitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which split a record belongs to. At most one way to say it; without any, all are `train`."""

    val_fraction: Annotated[
        float | None, Option("This share of records is val.", "always", metavar="SHARE", at_least=0, at_most=1)
    ] = None
    val_docs: Annotated[int | None, Option("So many records are val.", "always", metavar="N", at_least=0)] = None
    split_field: Annotated[str | None, Option("Its value names the split.", "always", metavar="FIELD")] = None
    val_inputs: Annotated[
        tuple[str, ...],
        Option("Files, directories or globs of val, repeatable.", "inputs", kind="paths", metavar="INPUT"),
    ] = ()
    split_key: Annotated[
        str | None,
        Option(
            "Records with the same value here stay together. Default: by file and position.", "always", metavar="FIELD"
        ),
    ] = None
    split_seed: Annotated[int, Option("Another seed, another choice.", "always")] = 0

    @property
    def is_used(self) -> bool:
        return self.by_hash or self.split_field is not None or bool(self.val_inputs)

    @property
    def by_hash(self) -> bool:
        return self.val_fraction is not None or self.val_docs is not None


class CheckConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is proved and what is tolerated while a build runs."""

    audit_rate: Annotated[
        float,
        Option(
            "Share of documents that the reference encodes too, during the run.", "no", at_least=0, at_most=1, live=True
        ),
    ] = 0.001
    max_rejects: Annotated[
        str, Option("Stop above this share or number of bad records.", "no", kind="share", live=True)
    ] = "1%"
    on_bad_record: Annotated[
        BadRecordChoice, Option("skip: into rejects/, up to --max-rejects; stop: at the first one.", "no", live=True)
    ] = "skip"

    check_receipts: Annotated[
        ReceiptChoice,
        Option(
            "Going on with a store, compare checksums of what is finished: sampled is all up to 1 GB, and so much of "
            "more. Sizes are always compared.",
            "no",
        ),
    ] = "sampled"

    @property
    def most_rejects(self) -> str:
        """Share or number of bad records above which to stop."""
        return "0" if self.on_bad_record == "stop" else self.max_rejects


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a build may use. Changes its speed, never its output."""

    workers: Annotated[int | None, Option("Processes. Default: one for each physical core.", "no", at_least=1)] = None
    memory_bytes: Annotated[
        int | None,
        Option(
            "For the whole run, like 4GB. Default: 60 % of what is available.",
            "no",
            kind="size",
            name="memory",
            at_least=1,
        ),
    ] = None
    batch_bytes: Annotated[
        int | None,
        Option(
            "Text read, encoded and written at a time. Default: what fits the memory.",
            "no",
            kind="size",
            flag="",
            at_least=1,
        ),
    ] = None
    doc_timeout: Annotated[
        float, Option("Seconds after which a document that hangs the tokenizer is set aside.", "no", at_least=0.1)
    ] = 300.0
    pin: Annotated[PinChoice, Option("Pin workers.", "no")] = "none"
    profile: Annotated[
        str | None, Option("Write a profile of the workers, for `python -m pstats`.", "no", kind="path")
    ] = None


class BuildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, in the order in which a plan holds them."""

    read: Annotated[ReadConfig, Section("Reading")] = ReadConfig()
    tokenizer: Annotated[TokenizerConfig, Section("Tokens")]
    store: Annotated[StoreConfig, Section("Store")] = StoreConfig()
    template: Annotated[TemplateConfig, Section("Supervised data", nested=True)] = TemplateConfig()
    split: Annotated[SplitConfig, Section("Splits", nested=True)] = SplitConfig()
    check: Annotated[CheckConfig, Section("Checks")] = CheckConfig()
    resources: Annotated[Resources, Section("Resources")] = Resources()


def split_path(field: str) -> tuple[str, ...]:
    """`"meta.url"` as the names that lead to a field."""
    return tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", field))


ALWAYS_ALLOWED = 10  # rejects, where the limit is a share: so that a small file passes


def reject_limit(max_rejects: str, records_read: int, *, at_least: int = ALWAYS_ALLOWED) -> float:
    """How many rejects a run may have after so many records."""
    try:
        number = float(max_rejects[:-1]) if max_rejects.endswith("%") else int(max_rejects)
        if not 0 <= number < float("inf"):
            raise ValueError
        return max(float(at_least), number / 100 * records_read) if max_rejects.endswith("%") else number
    except ValueError:
        raise UsageError(f"--max-rejects {max_rejects!r} is neither a share like 1% nor a number like 500.") from None
