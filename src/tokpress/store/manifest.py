"""The JSON records of a store, version 1.

In: nothing. Out: `Plan` (written first), `Receipt` (one a shard), `Manifest` (written last), and the one way in which they
become bytes: canonical JSON, so that a record that was read and is written again gives the same bytes. The manifest
carries a checksum of itself and of every other file, so that no byte of a store can change unnoticed.

A store may come from anyone: numbers are bounded and names checked as they are read, so that nothing outside is opened.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from tokpress.batches import ON_REQUEST
from tokpress.config import SpecialTokenPolicy
from tokpress.errors import StoreError
from tokpress.records import Parity, TokenizerInfo
from tokpress.sources.base import Input
from tokpress.store.durable import checksum, write_file

FORMAT = "tokpress-store"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PLAN = "plan.json"
SHARDS = "shards"
REJECTS = "rejects"
TOKENIZER = "tokenizer"
PACKS = "packs"  # plans for packing; each is sealed by itself
SHARD_FILES = ("bin", "ends", "pos")  # the extensions that every shard has
MASK = "mask"  # and this one, if a part of the documents is learned
KEPT = "docs.parquet"  # and this one, with --keep
TRAIN = "train"  # the split that every store has; its receipts speak for those of the others
_NAME = r"\.*[A-Za-z0-9_-][A-Za-z0-9._-]*"  # more than dots
_SAFE_PATH = re.compile(rf"({_NAME}/)?{_NAME}")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]  # beyond any real store, and sums of them fit into 64 bits
Record = TypeVar("Record", bound=msgspec.Struct)


class FileEntry(msgspec.Struct, frozen=True):
    bytes: Count
    xxh3: str  # of the whole file, 16 hexadecimal digits


class Slice(msgspec.Struct, frozen=True):
    """The records of one input that start in [start, stop); the rest of it if `stop` is None."""

    input: Count
    start: Count = 0
    stop: Count | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
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


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    learned: Count | None = None  # tokens that the mask marks

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


class Split(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    docs: Count
    tokens: Count
    learned: Count | None = None  # tokens that the masks mark
    continued: Count = 0  # documents that go on with the record of the one before
    truncated: Count = 0  # records that lost their end to --max-length
    shards: list[Receipt]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    rate: float
    docs: Count


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
    run: dict[str, Any]  # how it went: seconds, rates, versions; no part of the fingerprint
    checksum: str = ""  # of this file with the checksum left empty


def rejects_name(unit: int, number: int) -> str:
    """The file of the records that were rejected on the way to a shard; there is none if none were."""
    return f"{unit:05d}-{number:03d}.jsonl"


def shard_name(split: str, unit: int, number: int) -> str:
    return f"{split}-{unit:05d}-{number:03d}"


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


@cache
def _decoder(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(kind)


def read_record(path: Path, kind: type[Record]) -> Record:
    try:
        record: Record = _decoder(kind).decode(path.read_bytes())
        return record
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. {verify_hint(path.parent)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {error}. {verify_hint(path.parent)}") from error


def verify_hint(store: Path) -> str:
    return f"Look at the whole store: tokpress verify {store}"


def fingerprint(manifest: Manifest) -> str:
    covered = ("bin", "ends", MASK)  # a mask, where there is one
    tokens = {
        name: [
            (receipt.docs, *(receipt.files[file].xxh3 for file in covered if file in receipt.files))
            for receipt in split.shards
        ]
        for name, split in manifest.splits.items()
    }
    frame = (manifest.dtype, manifest.bos_id, manifest.eos_id, manifest.special_tokens)
    return hashlib.sha256(msgspec.json.encode((manifest.tokenizer.fingerprint, *frame, tokens))).hexdigest()


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    sealed = seal(msgspec.structs.replace(manifest, fingerprint=fingerprint(manifest)))
    write_file(directory / MANIFEST, encode(sealed))
    return sealed


def seal(manifest: Manifest) -> Manifest:
    unsealed = msgspec.structs.replace(manifest, checksum="")
    return msgspec.structs.replace(manifest, checksum=checksum(encode(unsealed)))


def is_intact(manifest: Manifest, data: bytes) -> bool:
    """Whether `data` is, to the byte, what `write_manifest` wrote."""
    return encode(seal(manifest)) == data


class _Header(msgspec.Struct):
    """What every version of a manifest begins with."""

    format: str = ""
    format_version: int = 0


def read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST
    if not directory.is_dir():
        raise StoreError(f"no store at {directory}: there is no such directory. Make one: tokpress build --help")
    if not path.is_file():
        if (directory / PLAN).is_file():
            raise StoreError(
                f"the store at {directory} is not finished: it has no {MANIFEST}. Run its `tokpress build` command again."
            )
        raise StoreError(f"no store at {directory}: it has no {MANIFEST}. Make one: tokpress build --help")
    header = read_record(path, _Header)
    if header.format != FORMAT:
        raise StoreError(f"no store at {directory}: {path} is not the manifest of one. Is it the right directory?")
    if header.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {header.format_version}; this tokpress reads version {FORMAT_VERSION}. "
            "Update it: pip install -U tokpress"
        )
    manifest = read_record(path, Manifest)
    _check_names(manifest, path)
    return manifest


def _check_names(manifest: Manifest, path: Path) -> None:
    """Every file that a reader may open lies inside the store and belongs to one shard."""
    names = list(manifest.files)
    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if shard.split != split or not set(SHARD_FILES) <= shard.files.keys():
                raise StoreError(f"{path} lists {shard.name!r}, which is no shard of split {split!r}. Do not trust it.")
            stem = shard.path("")
            names += [stem + extension for extension in shard.files]
    for name in names:
        if not _SAFE_PATH.fullmatch(name):
            raise StoreError(f"{path} names a file {name!r}, which is not inside the store. Do not trust it.")
    if len(set(names)) < len(names):
        raise StoreError(f"{path} names a file twice. Do not trust it.")
