"""Copies of remote objects on this machine's disk: checked, bounded, and never the only copy of anything.

In: an object's address and version, and a way to get it. Out: a file. Many processes share the directory: a copy has its
name only when it is whole, carries a checksum of its own, is compared with it the first time a process uses it, and got
again if it is not what it was. Those that were not used for longest go first; a map of one that goes stays as it is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from tokpress.errors import UsageError

CACHE_DIR = "TOKPRESS_CACHE_DIR"
CACHE_BYTES = "TOKPRESS_CACHE_BYTES"
_DEFAULT_BYTES = 20 * 10**9
_CHUNK_BYTES = 4 * 1024**2


def cache_directory() -> Path:
    named = os.environ.get(CACHE_DIR)
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokpress"


def cache_limit() -> int:
    named = os.environ.get(CACHE_BYTES, "")
    if named and not named.isdigit():
        raise UsageError(f"{CACHE_BYTES}={named!r} is not a number of bytes. Give one, or leave it out.")
    return int(named) if named else _DEFAULT_BYTES


class Copies:
    def __init__(self, directory: Path, most_bytes: int) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._checked: set[str] = set()

    def get(self, address: str, version: str, size: int, fetch: Callable[[], Iterable[Any]]) -> Path:
        """The file, with all its bytes; `fetch` gives them, one part after the other, if there is no sound copy."""
        name = xxhash.xxh3_128_hexdigest(f"{address}\n{version}\n{size}".encode())
        found = self._find(name, size)
        if found is not None:
            return found
        if size > self._most_bytes:
            raise UsageError(
                f"a copy of {address} takes {size:,} bytes, and the cache in {self._directory} is bounded to "
                f"{self._most_bytes:,}. Give it more ({CACHE_BYTES}), or copy the store to a disk: tokpress copy"
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_room(size)
        temporary = self._directory / f".{name}.{secrets.token_hex(8)}.tmp"
        digest = xxhash.xxh3_64()
        try:
            with temporary.open("wb") as file:
                for part in fetch():
                    digest.update(part)
                    file.write(part)
                if file.tell() != size:
                    raise OSError(5, f"{file.tell():,} bytes arrived instead of {size:,}", address)
            path = self._directory / f"{name}-{digest.hexdigest()}"
            temporary.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
        self._checked.add(path.name)
        return path

    def _find(self, name: str, size: int) -> Path | None:
        for path in self._directory.glob(f"{name}-*"):
            with suppress(OSError):  # gone meanwhile
                if path.name in self._checked or (path.stat().st_size == size and _checksum(path) == path.name[-16:]):
                    self._checked.add(path.name)
                    os.utime(path)
                    return path
                path.unlink()
        return None

    def _make_room(self, size: int) -> None:
        found = []
        for path in self._directory.glob("*"):
            with suppress(OSError):
                entry = path.stat()
                found.append((entry.st_mtime_ns, entry.st_size, path))
        there = sum(size for _, size, _ in found)
        for _, bytes_of_one, path in sorted(found, key=lambda one: one[0]):
            if there + size <= self._most_bytes:
                return
            with suppress(OSError):
                path.unlink()
            there -= bytes_of_one


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
