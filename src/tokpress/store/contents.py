"""What a finished store is made of, for who takes all of it elsewhere.

In: a store. Out: its files with sizes and checksums, and its manifest as the bytes that it is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokpress.errors import StoreError, UsageError
from tokpress.records import MANIFEST, PACKS, PLAN, FileEntry, Manifest
from tokpress.storage.base import Storage
from tokpress.store.manifest import is_intact, read_manifest, verify_hint

Progress = Callable[[int, int], None]  # bytes just done, bytes of all
Entries = dict[str, FileEntry | None]  # None: a file of a pack, of which the manifest knows nothing


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did."""

    store: str
    to: str
    files: int
    bytes: int
    sent_files: int  # the others were there
    sent_bytes: int
    fingerprint: str


def read_whole_manifest(source: Storage) -> tuple[Manifest, bytes]:
    """Of a finished store, with its bytes."""
    manifest, data = read_manifest(source), source.read(MANIFEST)
    if not is_intact(manifest, data):
        raise StoreError(f"{source.location(MANIFEST)} was changed after the build. {verify_hint(source)}")
    return manifest, data


def store_files(source: Storage, manifest: Manifest) -> Entries:
    """All files of a store but its manifest, the plan first."""
    receipts = [receipt for split in manifest.splits.values() for receipt in split.shards]
    listed = {receipt.path(name): entry for receipt in receipts for name, entry in receipt.files.items()}
    entries: Entries = {PLAN: manifest.files.get(PLAN), **manifest.files, **listed}
    return entries | dict.fromkeys(source.list(PACKS))


def file_sizes(source: Storage, entries: Entries) -> dict[str, int]:
    return {key: source.size(key) if entry is None else entry.bytes for key, entry in entries.items()}


def other_store(target: str, source: Storage) -> UsageError:
    return UsageError(f"{target} holds another store than {source.url}. Choose another place, or remove it first.")


def damaged(source: Storage, key: str) -> StoreError:
    return StoreError(f"{source.location(key)} is damaged: it is not what the manifest says. {verify_hint(source)}")
