"""The JSON records of a store, version 1.

In: nothing. Out: `Plan` (written first), `Receipt` (one a shard), `Manifest` (written last), and the one way in which they
become bytes: canonical JSON, so that a record that was read and is written again gives the same bytes. The manifest
carries a checksum of itself and of every other file, so that no byte of a store can change unnoticed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokpress.config import SpecialTokenPolicy
from tokpress.engines.base import TokenizerInfo
from tokpress.engines.parity import Parity
from tokpress.errors import StoreError
from tokpress.sources.base import Input
from tokpress.store.durable import checksum, write_file

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PLAN = "plan.json"
SHARDS = "shards"
REJECTS = "rejects"
TOKENIZER = "tokenizer"
_SAFE_NAME = re.compile(r"[A-Za-z0-9._-]+")

Record = TypeVar("Record", bound=msgspec.Struct)


class FileEntry(msgspec.Struct, frozen=True):
    bytes: int
    xxh3: str  # of the whole file, 16 hexadecimal digits


class Slice(msgspec.Struct, frozen=True):
    """The records of one input that start in [start, stop); the rest of it if `stop` is None."""

    input: int
    start: int = 0
    stop: int | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Conservation: read = written + rejected, for every shard, unit and store."""

    read: int = 0
    written: int = 0
    rejected: int = 0

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


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One shard, finished. `next_input` and `next_position` say where its unit goes on; None: it was the unit's last."""

    split: str
    unit: int
    number: int
    docs: int
    tokens: int
    max_id: int  # -1 if there are no tokens
    files: dict[str, FileEntry]  # by extension: bin, ends, pos
    sources: list[tuple[int, int]]  # runs of documents: (input, how many)
    counts: Counts  # of the records read since the shard before
    next_input: int | None
    next_position: int | None

    @property
    def name(self) -> str:
        return shard_name(self.split, self.unit, self.number)


class Split(msgspec.Struct, frozen=True, kw_only=True):
    docs: int
    tokens: int
    shards: list[Receipt]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    rate: float
    docs: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "tokpress-store"
    format_version: int = FORMAT_VERSION
    fingerprint: str  # of the tokens and all that gives them their meaning; equal stores have equal ones
    tokenizer: TokenizerInfo
    dtype: str  # uint16 or uint32, little-endian
    bos_id: int | None
    eos_id: int | None
    special_tokens: SpecialTokenPolicy  # the policy for literals in text
    splits: dict[str, Split]
    units: list[Counts]
    totals: Counts
    rejects: dict[str, int]  # by reason
    parity: Parity
    audit: Audit
    files: dict[str, FileEntry]  # plan, tokenizer, rejects and receipts, by path inside the store
    run: dict[str, Any]  # how it went: seconds, rates, versions; no part of the fingerprint
    checksum: str = ""  # of this file with the checksum left empty


def shard_name(split: str, unit: int, number: int) -> str:
    return f"{split}-{unit:05d}-{number:03d}"


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes, kind: type[Record], name: str) -> Record:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{name} is damaged: {error}. Look at the whole store with: tokpress verify DIR") from error


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    sealed = msgspec.structs.replace(manifest, checksum="")
    sealed = msgspec.structs.replace(sealed, checksum=checksum(encode(sealed)))
    write_file(directory / MANIFEST, encode(sealed))
    return sealed


def is_intact(manifest: Manifest, data: bytes) -> bool:
    """Whether `data` is, to the byte, what `write_manifest` wrote."""
    unsealed = msgspec.structs.replace(manifest, checksum="")
    return encode(manifest) == data and checksum(encode(unsealed)) == manifest.checksum


def read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST
    if not directory.is_dir():
        raise StoreError(f"no store at {directory}: there is no such directory. Make one: tokpress build --help")
    if not path.is_file():
        if (directory / PLAN).is_file():
            raise StoreError(f"the store at {directory} is not finished. Run its `tokpress build` command again.")
        raise StoreError(f"no store at {directory}: it has no {MANIFEST}. Make one: tokpress build --help")
    manifest = decode(path.read_bytes(), Manifest, str(path))
    if manifest.format != "tokpress-store" or manifest.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format {manifest.format} version {manifest.format_version}; this tokpress reads "
            f"version {FORMAT_VERSION}. Update it: pip install -U tokpress"
        )
    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if shard.split != split or not _SAFE_NAME.fullmatch(shard.name) or shard.name.startswith("."):
                raise StoreError(f"{path} names a shard {shard.name!r}, which is not a shard's name. Do not trust it.")
    for name in manifest.files:
        parts = name.split("/")
        if len(parts) > 2 or not all(_SAFE_NAME.fullmatch(part) and part.strip(".") for part in parts):
            raise StoreError(f"{path} names a file {name!r}, which is not inside the store. Do not trust it.")
    return manifest
