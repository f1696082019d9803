"""The JSON records of a store, version 1.

In: nothing. Out: `Plan` (written first), `Receipt` (one a shard), `Manifest` (written last), and the one way in which they
become bytes: canonical JSON, so that a record that was read and is written again gives the same bytes. The manifest
carries a checksum of itself and of every other file, so that no byte of a store can change unnoticed.

A store may come from anyone: numbers are bounded and names checked as they are read, so that nothing outside is opened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from tokpress.errors import StoreError
from tokpress.records import (
    FORMAT,
    FORMAT_VERSION,
    KEPT,
    MANIFEST,
    MASK,
    PLAN,
    SHARD_FILES,
    SHARDS,
    Manifest,
    shard_name,
)
from tokpress.storage.base import Storage, checksum
from tokpress.storage.once import create_or_read
from tokpress.storage.requests import RequestFailed

_NAME = r"\.*[A-Za-z0-9_-][A-Za-z0-9._-]*"  # more than dots
_SAFE_PATH = re.compile(rf"({_NAME}/)?{_NAME}")

_SHOWN_DIFFERENCES = 10
_SHOWN_VALUES = 10
_ALWAYS = frozenset(SHARD_FILES)
_ORDINARY = _ALWAYS | {MASK, KEPT}

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
    """None: there is none, or what is there is no such record. A bucket that does not answer is an error: what is there must
    not be taken for nothing, and replaced."""
    try:
        return read_record(storage, key, kind)
    except StoreError as error:
        if isinstance(error.__cause__, RequestFailed):
            raise
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
    if not storage.has_lock:
        return create_manifest(storage, manifest)
    sealed = seal(msgspec.structs.replace(manifest, fingerprint=fingerprint(manifest)))
    storage.put(MANIFEST, encode(sealed))
    return sealed


def create_manifest(storage: Storage, manifest: Manifest) -> Manifest:
    """Unless another writer was first: then what it wrote, which has to say the same of the tokens."""
    sealed = seal(msgspec.structs.replace(manifest, fingerprint=fingerprint(manifest)))
    if create_or_read(storage, MANIFEST, encode(sealed)) == encode(sealed):
        return sealed
    found = read_manifest(storage)
    if found.fingerprint != sealed.fingerprint:
        raise StoreError(
            f"{storage.location(MANIFEST)} was written by another machine, of other tokens. {verify_hint(storage)}"
        )
    return found


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


class _Export(msgspec.Struct):
    """What an export says of itself in its `metadata.json`."""

    format: Literal["tokpress-export"]
    options: dict[str, Any]


def read_manifest(storage: Storage) -> Manifest:
    url = storage.url
    if not storage.present():
        raise StoreError(f"no store at {url}: there is no such directory. Make one: tokpress build --help")
    if not storage.exists(MANIFEST):
        if storage.exists(PLAN):
            raise StoreError(
                f"the store at {url} is not finished: it has no {MANIFEST}. Run its `tokpress build` command again."
            )
        if export := find_record(storage, "metadata.json", _Export):
            raise StoreError(
                f"no store at {url}: it is an export of one (--to {export.options.get('to')}), for that trainer's own "
                "reader. Name the store itself; or, of raw tokens, make one: tokpress import --help"
            )
        raise StoreError(f"no store at {url}: it has no {MANIFEST}. Make one: tokpress build --help")
    try:
        manifest = read_record(storage, MANIFEST, Manifest)
    except StoreError:
        _check_header(read_record(storage, MANIFEST, _Header), storage)
        raise
    _check_header(manifest, storage)
    _check_names(manifest, storage.location(MANIFEST))
    return manifest


def _check_header(header: _Header | Manifest, storage: Storage) -> None:
    url, place = storage.url, storage.location(MANIFEST)
    if header.format != FORMAT:
        raise StoreError(f"no store at {url}: {place} is not the manifest of one. Is it the right directory?")
    if header.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{place} has format version {header.format_version}; this tokpress reads version {FORMAT_VERSION}. "
            "Update it: pip install -U tokpress"
        )


def _check_names(manifest: Manifest, path: str) -> None:
    """Every file that a reader may open lies inside the store and belongs to one shard."""
    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if shard.split != split or not shard.files.keys() >= _ALWAYS:
                raise StoreError(f"{path} lists {shard.name!r}, which is no shard of split {split!r}. Do not trust it.")
    names = _names(manifest)
    if not all(map(_SAFE_PATH.fullmatch, names)):
        wrong = next(name for name in names if not _SAFE_PATH.fullmatch(name))
        raise StoreError(f"{path} names a file {wrong!r}, which is not inside the store. Do not trust it.")
    if len(set(names)) < len(names):
        raise StoreError(f"{path} names a file twice. Do not trust it.")


def _names(manifest: Manifest) -> list[str]:
    """Those to look at. There may be hundreds of thousands, but what a shard's files are called follows from its split, its
    numbers and their extensions: where these are ordinary, the names of all shards are safe and unequal if those of one are.
    """
    names = list(manifest.files)
    ordinary = all(name.endswith(".json") for name in names if name.startswith(f"{SHARDS}/"))
    for split, entry in manifest.splits.items():
        extensions = set[str]().union(*(shard.files for shard in entry.shards))
        numbers = {(shard.unit, shard.number) for shard in entry.shards}
        if ordinary and extensions <= _ORDINARY and len(numbers) == len(entry.shards):
            names += [f"{SHARDS}/{shard_name(split, 0, 0)}.{extension}" for extension in extensions]
        else:
            names += [shard.path(extension) for shard in entry.shards for extension in shard.files]
    return names


_DERIVED = {"val_below"}


def differences(old: Any, new: Any) -> str:
    """What differs between two records, a line each; the first of them, if there are many."""
    found = list(_differences(old, new))
    shown = "".join(f"\n  {difference}" for difference in found[:_SHOWN_DIFFERENCES])
    rest = len(found) - _SHOWN_DIFFERENCES
    return shown + (f"\n  and {rest} more" if rest > 0 else "")


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    if (isinstance(old, dict) and new is None) or (isinstance(new, dict) and old is None):
        one_by_one = list(_differences(_told(old), _told(new), where))
        yield from one_by_one or [f"{where}: was {_plain(old)}, is {_plain(new)}"]
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            yield from _differences(old.get(key), new.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {_said('was', old)}, {_said('is', new)}"
            return
        for i, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, now, f"{where}[{i}]")
    elif old != new:
        yield f"{where}: was {_plain(old)}, is {_plain(new)}"


def _plain(value: Any) -> Any:
    return "nothing" if value is None else value


def _told(options: dict[str, Any] | None) -> dict[str, Any]:
    """Of a group of options that only one side has: those that were given, without what follows from them."""
    return {
        name: value for name, value in (options or {}).items() if value not in (None, [], 0) and name not in _DERIVED
    }


def _said(verb: str, values: list[Any]) -> str:
    """A list by its values, if they are few and plain."""
    if len(values) > _SHOWN_VALUES or any(isinstance(value, dict | list) for value in values):
        return f"{verb} {len(values):,} of them"
    return f"{verb} {', '.join(map(str, values)) or 'nothing'}"
