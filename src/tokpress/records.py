"""What is on disk or on a wire: the records of a store, of its inputs and of its tokenizer.

In: nothing. Out: frozen records, most of them JSON in a store (version 1), and the names of a store's files. A store may
come from anyone, so numbers are bounded as they are read; `store.manifest` reads, checks and writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

SpecialTokenPolicy = Literal["text", "parse"]  # what a special token's name in a document is
Place = tuple[int, int]  # (input, position): where a record stands; places of one unit are in reading order
Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]  # beyond any real store, and sums of them fit into 64 bits

FORMAT = "tokpress-store"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PLAN = "plan.json"
SHARDS = "shards"
REJECTS = "rejects"
TOKENIZER = "tokenizer"
PACKS = "packs"  # plans for packing; each is sealed by itself
RUN = "run"  # while a store is written by several machines: a directory for the run, and in it who does what
RUN_RECORD = "run.json"  # and what they have to agree on
QUARANTINE = "quarantine"  # while a store is written: documents that no worker survives
SHARD_FILES = ("bin", "ends", "pos")  # the extensions that every shard has
MASK = "mask"  # and this one, if a part of the documents is in the loss
KEPT = "docs.parquet"  # and this one, with --keep
TRAIN = "train"  # the split that every store has; its receipts speak for those of the others

STDIN = "-"


class Reject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that was read but not written, and why. One line of `rejects/*.jsonl`."""

    source: str  # path of the input
    input: int  # its index in the plan
    position: int  # byte offset of the record (in the decompressed stream), or row number
    line: int | None = None  # counted from 1, where the input has lines
    reason: str  # one of the codes below
    detail: str
    preview: str = ""  # the record's first bytes, made printable
    records: int = 1  # more than one where a damaged block hides a known number of records


BAD_JSON = "bad-json"  # not one JSON object on the line
BAD_CSV = "bad-csv"  # a record with another number of fields than there are columns
MISSING_FIELD = "missing-field"  # no text field, or it is null
WRONG_TYPE = "wrong-type"  # the text field holds something other than text
INVALID_UTF8 = "invalid-utf8"
EMPTY = "empty"  # no text in it, with --drop-empty
TOO_LARGE = "too-large"  # over --max-doc-bytes; never loaded
DAMAGED_INPUT = "damaged-input"  # the file ends early or is corrupt from here on
OVERLONG = "overlong"  # more tokens than --max-length, with --overlong drop
EMPTY_LOSS = "empty-loss"  # nothing of it is in the loss, without --keep-empty-loss
BAD_CHAT = "bad-chat"  # the messages are no list of objects, or the chat template refuses them
BAD_TEMPLATE = "template-failed"  # --template cannot be rendered for it
CANNOT_ENCODE = "cannot-encode"  # the tokenizer has no ids for it
TEMPLATE_LIMIT = "template-limit"  # the template takes too many steps or writes too much for it
BAD_SPLIT = "bad-split"  # what stands in --split-field names no split

ON_REQUEST = (EMPTY, OVERLONG)  # left out because the user asked for it: no bad records


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One file as the plan lists it."""

    path: str  # "-" for standard input; an address, if it is not a file of this machine
    format: str
    compression: str | None = None
    size: int  # bytes as stored
    mtime_ns: int
    split: str | msgspec.UnsetType = msgspec.UNSET  # that all its records belong to
    # Relative to the argument that found it: what is hashed to split its records. Plans before this was there hash the path.
    name: str | msgspec.UnsetType = msgspec.UNSET
    tag: str | msgspec.UnsetType = msgspec.UNSET  # of an object: its ETag or checksum; mtime_ns is 0 then

    @property
    def version(self) -> str:
        """Another one when its bytes have changed: for a file of this machine, the time of its last change."""
        return str(self.mtime_ns) if self.tag is msgspec.UNSET else self.tag

    @property
    def is_remote(self) -> bool:
        return self.tag is not msgspec.UNSET

    @property
    def has_rows(self) -> bool:
        """Whether positions in it are row numbers, not byte offsets."""
        return self.format in ("parquet", "arrow")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """A tokenizer as bytes: all that is needed to make it again anywhere. Stored in every store's `tokenizer/`."""

    kind: str  # huggingface, sentencepiece, tiktoken or bytes
    files: Mapping[str, bytes]

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.kind.encode())
        for name, data in sorted(self.files.items()):
            digest.update(f"\0{name}\0{len(data)}\0".encode())
            digest.update(data)
        return digest.hexdigest()


class TokenizerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a tokenizer says about itself."""

    kind: str
    fingerprint: str
    vocab_size: int  # one more than the largest id, added tokens included
    special_tokens: dict[str, int]
    bos_token: str | None = None
    eos_token: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first document on which two engines differ, and where."""

    text: str
    token: int  # index of the first differing id
    fast: list[int]  # ids from there on, a few
    reference: list[int]

    def __str__(self) -> str:
        return f"at token {self.token}: fast {self.fast}, reference {self.reference}, in {self.text!r}"


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared before the run, and the outcome."""

    outcome: str  # of the fast engine that was tried first: equal, different, unsupported; not-needed if there is none
    engine: str  # the engine that the run uses
    reference: str
    docs: int = 0
    bytes: int = 0
    difference: Difference | None = None
    detail: str = ""
    refused: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # fast engines that are not used, as tried, and why

    reference_version: str | msgspec.UnsetType = (
        msgspec.UNSET
    )  # of the library that defines the ids, if they depend on it

    @property
    def refusals(self) -> dict[str, str]:
        return {} if self.refused is msgspec.UNSET else self.refused

    @property
    def reason(self) -> str:
        """Why it is not equal."""
        return str(self.difference or self.detail)

    def __add__(self, other: Parity) -> Parity:
        """Of two parts of one proof: equal if both are, and of the same engine."""
        found = self if self.outcome != "equal" else other
        if found.outcome == "equal" and self.engine != other.engine:
            detail = f"{self.engine} and {other.engine} are each proved on a part of the sample only"
            found = msgspec.structs.replace(found, outcome="different", engine=found.reference, detail=detail)
        return msgspec.structs.replace(
            found,
            docs=self.docs + other.docs,
            bytes=self.bytes + other.bytes,
            refused=self.refusals | other.refusals or msgspec.UNSET,
        )


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    bytes: Count
    xxh3: str  # of the whole file, 16 hexadecimal digits


class Slice(msgspec.Struct, frozen=True):
    """The records of one input that start in [start, stop); the rest of it if `stop` is None."""

    input: Count
    start: Count = 0
    stop: Count | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Conservation: read = written + rejected, for every shard, unit and store."""

    read: Count = 0
    written: Count = 0
    rejected: Count = 0

    def __str__(self) -> str:
        return f"{self.read:,} read, {self.written:,} written, {self.rejected:,} rejected"

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            read=self.read + other.read,
            written=self.written + other.written,
            rejected=self.rejected + other.rejected,
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. Everything here decides the output; nothing else does."""

    format_version: int
    inputs: list[Input]
    units: list[list[Slice]]
    options: dict[str, Any]
    tokenizer: TokenizerInfo


_ON_DISK = {"loss_tokens": "learned"}  # the name that version 1 of the format gave it


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_ON_DISK, gc=False):
    """One shard, finished. `next_input` and `next_position` say where its unit goes on; None: it was the unit's last.

    Shards of several splits with the same unit and number end at the same place of the input. Of these the one of `train`
    has the rejects, names the others (`beside`), and its receipt is written last: where it is, all are.
    """

    split: str
    unit: Count
    number: Count
    docs: Count
    tokens: Count
    max_id: Annotated[int, msgspec.Meta(ge=-1, lt=2**32)]  # -1 if there are no tokens
    files: dict[str, FileEntry]  # by extension: bin, ends, pos; with masks, mask; with --keep, docs.parquet
    sources: list[tuple[Count, Count]]  # runs of documents: (input, how many)
    counts: Counts  # of the records read since the shard before
    rejects: dict[str, Count]  # those among them that were rejected, by reason; listed in `rejects_name`
    audited: Count  # documents that the reference encoded too
    next_input: Count | None
    next_position: Count | None
    beside: tuple[str, ...] = ()  # splits that have a shard with this unit and number, too
    continued: Count = 0  # documents that go on with the record of the one before: written + continued = docs
    truncated: Count = 0  # records that lost their end to --max-length
    loss_tokens: Count | None = None  # tokens that the mask marks

    @property
    def name(self) -> str:
        return shard_name(self.split, self.unit, self.number)

    @property
    def bad_records(self) -> int:
        """Rejects that count for `--max-rejects`: a document that was left out on request is none."""
        return self.counts.rejected - sum(self.rejects.get(reason, 0) for reason in ON_REQUEST)

    def path(self, extension: str) -> str:
        """One of its files, by its path inside the store; "json" is the receipt itself."""
        return f"{SHARDS}/{self.name}.{extension}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A document that ended the worker that encoded it, alone, twice: it is a reject, and not tried again."""

    unit: Count
    input: Count
    position: Count
    reason: str


class Split(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_ON_DISK):
    docs: Count
    tokens: Count
    loss_tokens: Count | None = None  # tokens that the masks mark
    continued: Count = 0  # documents that go on with the record of the one before
    truncated: Count = 0  # records that lost their end to --max-length
    shards: list[Receipt]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    rate: float
    docs: Count


def _absent() -> Any:
    """A fact that is left out of the JSON where a store does not have it, and only there."""
    return msgspec.UNSET


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went. Of an import only `imported_from`, `seconds` and `tokpress` are there, of a build all the others;
    what is not there is `msgspec.UNSET`. Fields stand in the order of the JSON."""

    imported_from: str | msgspec.UnsetType = msgspec.UNSET  # a format
    seconds: float
    input_bytes: int = _absent()  # read by this run, as stored; what a run before it did is not counted
    text_bytes: int = _absent()
    input_mb_per_s: float = _absent()
    docs_per_s: float = _absent()
    tokens_per_s: int = _absent()
    stage_seconds: dict[str, float] = _absent()  # of all workers
    bottleneck: str | None = _absent()  # the stage that took most; None: nothing was left to do
    cpu_use: float = _absent()  # share of the workers' cores
    peak_memory_bytes: int = _absent()  # of all processes
    workers: int = _absent()
    threads: int = _absent()  # of each worker
    python: str = _absent()
    versions: dict[str, str] = _absent()  # of the packages that decide the output
    tokpress: str = _absent()  # the version that imported it
    tokenizer: str | msgspec.UnsetType = (
        msgspec.UNSET
    )  # as it was given: a path, which may be gone, a hub id, or a name

    @property
    def is_import(self) -> bool:
        return self.imported_from is not msgspec.UNSET


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    fingerprint: str = ""  # of the tokens and all that gives them their meaning; equal stores have equal ones
    tokenizer: TokenizerInfo
    dtype: Annotated[str, msgspec.Meta(pattern=r"^uint(16|32)\Z")]  # little-endian
    bos_id: Count | None
    eos_id: Count | None
    special_tokens: SpecialTokenPolicy  # the policy for literals in text
    splits: dict[str, Split]
    units: list[Counts]
    totals: Counts
    rejects: dict[str, Count]  # by reason
    parity: Parity
    audit: Audit
    files: dict[str, FileEntry]  # plan, tokenizer, rejects and receipts, by path inside the store
    run: RunFacts  # no part of the fingerprint
    checksum: str = ""  # of this file with the checksum left empty


def rejects_name(unit: int, number: int) -> str:
    """The file of the records that were rejected on the way to a shard; there is none if none were."""
    return f"{unit:05d}-{number:03d}.jsonl"


def shard_name(split: str, unit: int, number: int) -> str:
    return f"{split}-{unit:05d}-{number:03d}"
