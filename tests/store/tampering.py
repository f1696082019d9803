"""Stores that are changed on purpose: by accident (bytes) or by someone who knows the format (checksums and all)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from conftest import file_checksum

from tokpress.records import MANIFEST, Counts, FileEntry, Manifest, Receipt
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode, fingerprint, read_manifest, seal
from tokpress.store.receipts import stored_forms

Change = Callable[[Receipt], Receipt]


def store_files(directory: Path) -> dict[str, bytes]:
    """Every file of a store, by its path inside."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def reseal(directory: Path, **changes: object) -> Manifest:
    """Puts other values into the manifest, with a checksum that fits them."""
    manifest = seal(msgspec.structs.replace(read_manifest(LocalStorage(directory)), **changes))
    (directory / MANIFEST).write_bytes(encode(manifest))
    return manifest


def forge(directory: Path, change: Change = lambda receipt: receipt) -> None:
    """Makes the receipts be as `change` says and everything that follows from them and from the files fit: checksums,
    fingerprint, totals of splits and units."""
    manifest = read_manifest(LocalStorage(directory))
    splits = {}
    for name, split in manifest.splits.items():
        shards = []
        for old in split.shards:
            files = {extension: file_entry(directory / old.path(extension)) for extension in old.files}
            shards.append(change(msgspec.structs.replace(old, files=files)))
        docs, tokens = sum(receipt.docs for receipt in shards), sum(receipt.tokens for receipt in shards)
        splits[name] = msgspec.structs.replace(split, shards=shards, docs=docs, tokens=tokens)
    for name, (data, _) in stored_forms(receipt for split in splits.values() for receipt in split.shards):
        (directory / name).write_bytes(data)
    files = {name: file_entry(directory / name) for name in manifest.files if (directory / name).exists()}
    units = [Counts() for _ in manifest.units]
    for split in splits.values():
        for receipt in split.shards:
            units[receipt.unit] += receipt.counts
    changes = {"splits": splits, "files": files, "units": units, "totals": sum(units, Counts())}
    reseal(directory, **changes, fingerprint=fingerprint(msgspec.structs.replace(manifest, **changes)))


def file_entry(path: Path) -> FileEntry:
    return FileEntry(path.stat().st_size, file_checksum(path))


@contextmanager
def damaged(directory: Path, files: dict[str, bytes], kind: str, rng: random.Random) -> Iterator[list[str]]:
    """A store with one thing broken, and the names of the files it was done to; whole again afterwards."""
    names = [_choose(files, kind, rng)]
    data = files[names[0]]
    if kind == "flip":
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        _write(directory / names[0], data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
    elif kind == "truncate":
        _write(directory / names[0], data[: rng.randrange(len(data))])
    elif kind == "empty":
        _write(directory / names[0], b"")
    elif kind == "append":
        _write(directory / names[0], data + rng.randbytes(rng.randrange(1, 20)))
    elif kind == "delete":
        (directory / names[0]).unlink()
    elif kind == "swap":
        names.append(rng.choice(_twins(files, names[0])))
        for name, other in (names, reversed(names)):
            _write(directory / name, files[other])
    try:
        yield names
    finally:
        for name in names:
            _write(directory / name, files[name])


def _choose(files: dict[str, bytes], kind: str, rng: random.Random) -> str:
    if kind == "swap":
        return rng.choice([name for name in files if _twins(files, name)])
    return rng.choice([name for name, data in files.items() if data or kind in ("append", "delete")])


def _twins(files: dict[str, bytes], name: str) -> list[str]:
    """Other files of the same length but with other bytes."""
    data = files[name]
    return [other for other in files if len(files[other]) == len(data) and files[other] != data]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
