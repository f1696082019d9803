"""Every option of a build, frozen. Standard library and msgspec only, so that it imports at once.

In: what a user typed or passed to `tokpress.build`. Out: records that the rooms take whole; nothing reads a global.
Options that change the output are stored in `plan.json`; those that do not (`Resources`) are not.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tokpress.errors import UsageError

SpecialTokenPolicy = Literal["text", "parse"]
RecordKind = Literal["text", "json", "record"]
LossChoice = Literal["all", "assistant", "last"]
OverlongChoice = Literal["truncate", "drop", "split"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)}


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is and where its text stands."""

    format: str | None = None  # None: by file name; else "jsonl", "parquet", "arrow", "text", "lines", also "jsonl.zst"
    text_field: str = "text"  # dotted path into a record; "\\." for a dot inside a name
    separator: str | None = None  # for plain text: documents are what stands between separators
    max_doc_bytes: int = 256 * 1024**2  # a larger record is rejected without being loaded
    drop_empty: bool = False  # documents without text are rejected
    limit: int | None = None  # only the first so many documents, in the order of the inputs
    keep: tuple[str, ...] = ()  # fields stored beside each document, as text; dotted paths like `text_field`
    kind: RecordKind = "text"  # json: the field's value as JSON, whatever it is; record: all of the record as JSON
    required: tuple[str, ...] = ()  # other fields that must hold text; they come with the kept ones, first
    optional: tuple[str, ...] = ()  # kept fields that a table need not have

    @property
    def field_path(self) -> tuple[str, ...]:
        return () if self.kind == "record" else split_path(self.text_field)


class TemplateConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a record becomes text, what of it is learned, and how long it may get. At most one kind of template."""

    prompt_field: str | None = None
    completion_field: str | None = None
    prompt_separator: str = ""  # between the two; belongs to the prompt
    messages_field: str | None = None  # chats
    tools_field: str = "tools"  # beside them, if a record has it
    chat_template: str | None = None  # the template itself, not its path; None: the tokenizer's own
    date: str | None = None  # what a chat template is told that today is
    template: str | None = None  # a Jinja2 template for anything else, given the whole record
    loss: LossChoice | None = None  # of chats; None: assistant
    keep_empty_loss: bool = False  # records of which nothing is learned are written all the same
    max_length: int | None = None  # tokens of a document, BOS and EOS included
    overlong: OverlongChoice = "truncate"

    @property
    def has_mask(self) -> bool:
        return not (self.completion_field is None and self.messages_field is None and self.template is None)


class SplitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which split a record belongs to. At most one way to say it; without any, all are `train`."""

    val_fraction: float | None = None
    val_docs: int | None = None
    split_field: str | None = None  # its value names the split
    val_inputs: tuple[str, ...] = ()  # these files are `val`
    split_key: str | None = None  # records with the same value here stay together; None: by where a record stands
    split_seed: int = 0

    @property
    def is_used(self) -> bool:
        return self.by_hash or self.split_field is not None or bool(self.val_inputs)

    @property
    def by_hash(self) -> bool:
        return self.val_fraction is not None or self.val_docs is not None


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokenizer, and how it treats a document."""

    spec: str  # file, directory, hub id, name of a tiktoken encoding, or "bytes"
    engine: str = "auto"  # or a name of engines.table
    special_tokens: SpecialTokenPolicy = "text"  # a literal "<|endoftext|>" in a document is text, unless "parse"
    pattern: str | None = None  # for a rank file: a pattern's name ("cl100k") or the regular expression itself
    added_tokens: dict[str, int] = {}  # for a rank file: its special tokens, which the file does not carry
    bos: bool = False
    eos: bool = True
    bos_token: str | None = None  # None: the one that the tokenizer names
    eos_token: str | None = None


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are cut into files. Part of the plan: the same inputs give the same files."""

    unit_bytes: int | None = (
        None  # input that one worker takes on at a time; None: 256 MB, less if there is little input
    )
    shard_bytes: int = 256 * 10**6  # token bytes after which a new shard is begun


class CheckConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is proved and what is tolerated while a build runs."""

    audit_rate: float = 0.001  # share of documents encoded twice, by the reference too
    max_rejects: str = "1%"  # share of the records read, or a number of them


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a build may use. Changes its speed, never its output."""

    workers: int | None = None  # processes; None: one for each physical core that this process may run on
    memory_bytes: int | None = None  # for all of them together; None: 60 % of what is available
    batch_bytes: int | None = None  # text read, encoded and written at a time; None: what fits the memory
    doc_timeout: float = 300.0  # seconds after which a document is given up
    pin: Literal["none", "cores", "numa"] = "none"  # workers to cores or NUMA nodes
    profile: str | None = None  # file for a profile of the workers


class BuildConfig(msgspec.Struct, frozen=True, kw_only=True):
    tokenizer: TokenizerConfig
    read: ReadConfig = ReadConfig()
    template: TemplateConfig = TemplateConfig()
    split: SplitConfig = SplitConfig()
    store: StoreConfig = StoreConfig()
    check: CheckConfig = CheckConfig()
    resources: Resources = Resources()


def split_path(field: str) -> tuple[str, ...]:
    """`"meta.url"` as the names that lead to a field."""
    return tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", field))


def parse_size(text: str | int) -> int:
    """`"4GB"`, `"512MiB"`, `"1.5g"` or a plain number, as bytes."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"([0-9.]+)\s*([kmgt]?i?)b?", text.strip().lower())
    try:
        if match is None:
            raise ValueError
        return int(float(match[1]) * _UNITS[match[2]])
    except (ValueError, KeyError):
        raise UsageError(f"{text!r} is not a size. Write it like 4GB, 512MiB or 1048576.") from None


def reject_limit(max_rejects: str, records_read: int) -> float:
    """How many rejects a run may have after so many records; a handful is always allowed, so that a small file passes."""
    try:
        number = float(max_rejects[:-1]) if max_rejects.endswith("%") else int(max_rejects)
        if not 0 <= number < float("inf"):
            raise ValueError
        return max(10.0, number / 100 * records_read) if max_rejects.endswith("%") else number
    except ValueError:
        raise UsageError(f"--max-rejects {max_rejects!r} is neither a share like 1% nor a number like 500.") from None
