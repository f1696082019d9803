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
from typing import TypeVar

import msgspec

from tokpress.errors import StoreError
from tokpress.records import FORMAT, FORMAT_VERSION, MANIFEST, MASK, PLAN, SHARD_FILES, Manifest
from tokpress.storage.base import Storage, checksum

_NAME = r"\.*[A-Za-z0-9_-][A-Za-z0-9._-]*"  # more than dots
_SAFE_PATH = re.compile(rf"({_NAME}/)?{_NAME}")

Record = TypeVar("Record", bound=msgspec.Struct)


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


@cache
def _decoder(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(kind)


def read_record(storage: Storage, key: str, kind: type[Record]) -> Record:
    try:
        record: Record = _decoder(kind).decode(storage.read(key))
        return record
    except OSError as error:
        raise StoreError(f"{storage.location(key)} cannot be read: {error.strerror}. {verify_hint(storage)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{storage.location(key)} is damaged: {error}. {verify_hint(storage)}") from error


def find_record(storage: Storage, key: str, kind: type[Record]) -> Record | None:
    """None: there is none, or none that can be read."""
    try:
        return read_record(storage, key, kind)
    except StoreError:
        return None


def verify_hint(storage: Storage) -> str:
    return f"Look at the whole store: tokpress verify {storage.url}"


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


def write_manifest(storage: Storage, manifest: Manifest) -> Manifest:
    sealed = seal(msgspec.structs.replace(manifest, fingerprint=fingerprint(manifest)))
    storage.put(MANIFEST, encode(sealed))
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


def read_manifest(storage: Storage) -> Manifest:
    url, place = storage.url, storage.location(MANIFEST)
    if not storage.present():
        raise StoreError(f"no store at {url}: there is no such directory. Make one: tokpress build --help")
    if not storage.exists(MANIFEST):
        if storage.exists(PLAN):
            raise StoreError(
                f"the store at {url} is not finished: it has no {MANIFEST}. Run its `tokpress build` command again."
            )
        raise StoreError(f"no store at {url}: it has no {MANIFEST}. Make one: tokpress build --help")
    header = read_record(storage, MANIFEST, _Header)
    if header.format != FORMAT:
        raise StoreError(f"no store at {url}: {place} is not the manifest of one. Is it the right directory?")
    if header.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{place} has format version {header.format_version}; this tokpress reads version {FORMAT_VERSION}. "
            "Update it: pip install -U tokpress"
        )
    manifest = read_record(storage, MANIFEST, Manifest)
    _check_names(manifest, place)
    return manifest


def _check_names(manifest: Manifest, path: str) -> None:
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
