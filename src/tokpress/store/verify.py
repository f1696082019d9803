"""Whether a store is what its manifest says.

In: a store's directory. Out: a `Report` that names every damaged file. Checked are the size and checksum of every file,
the counts, that the document ends rise and close, that every id is in the vocabulary, and that no record was lost:
read = written + rejected in every unit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokpress.batches import Reject
from tokpress.errors import StoreError
from tokpress.store.durable import file_checksum
from tokpress.store.manifest import (
    MANIFEST,
    PLAN,
    REJECTS,
    SHARDS,
    Counts,
    FileEntry,
    Manifest,
    Plan,
    Receipt,
    decode,
    encode,
    is_intact,
    read_manifest,
)

_CHUNK_TOKENS = 4 * 1024**2


class Problem(msgspec.Struct, frozen=True):
    file: str
    message: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what is wrong."""

    path: str
    files: int
    bytes: int
    docs: int
    tokens: int
    reencoded_docs: int = 0  # with --deep
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_store(path: str | os.PathLike[str], *, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Checks a whole store; `progress` is told the bytes checked. Raises StoreError only if there is no store at all."""
    directory = Path(path)
    if not (directory / MANIFEST).is_file():
        read_manifest(directory)  # raises, and says what is missing
    data = (directory / MANIFEST).read_bytes()
    try:
        manifest = read_manifest(directory)
        intact = is_intact(manifest, data)
    except StoreError as error:
        return _only_manifest(directory, len(data), str(error))
    if not intact:
        return _only_manifest(directory, len(data), "its checksum does not match: it was changed after the build")
    check = _Check(directory, manifest, progress)
    problems = list(check.run())
    return Report(
        path=str(directory),
        files=check.files + 1,
        bytes=check.bytes + len(data),
        docs=sum(split.docs for split in manifest.splits.values()),
        tokens=sum(split.tokens for split in manifest.splits.values()),
        problems=problems,
    )


def _only_manifest(directory: Path, size: int, message: str) -> Report:
    problem = Problem(MANIFEST, message)
    return Report(path=str(directory), files=1, bytes=size, docs=0, tokens=0, problems=[problem])


class _Check:
    """One pass over a store whose manifest is intact."""

    def __init__(self, directory: Path, manifest: Manifest, progress: Callable[[int], None]) -> None:
        self.directory = directory
        self.manifest = manifest
        self.progress = progress
        self.files = 0
        self.bytes = 0

    def run(self) -> Iterator[Problem]:
        for name, entry in self.manifest.files.items():
            yield from self._file(name, entry)
        for split, listed in self.manifest.splits.items():
            for receipt in listed.shards:
                yield from self._shard(receipt)
            totals = (sum(receipt.docs for receipt in listed.shards), sum(receipt.tokens for receipt in listed.shards))
            if totals != (listed.docs, listed.tokens):
                yield Problem(MANIFEST, f"split {split} does not add up: its shards hold {totals} documents and tokens")
        yield from self._conservation()
        yield from self._strangers()

    def _file(self, name: str, entry: FileEntry) -> Iterator[Problem]:
        path = self.directory / name
        self.files += 1
        try:
            size = path.stat().st_size
            if size != entry.bytes:
                yield Problem(name, f"has {size:,} bytes instead of {entry.bytes:,}")
            elif file_checksum(path) != entry.xxh3:
                yield Problem(name, "its checksum does not match: the bytes were changed")
            self.bytes += size
            self.progress(size)
        except FileNotFoundError:
            yield Problem(name, "is missing")
        except OSError as error:
            yield Problem(name, f"cannot be read: {error.strerror}")

    def _shard(self, receipt: Receipt) -> Iterator[Problem]:
        names = {extension: f"{SHARDS}/{receipt.name}.{extension}" for extension in receipt.files}
        broken = False
        for extension, entry in receipt.files.items():
            for problem in self._file(names[extension], entry):
                broken = True
                yield problem
        if broken:
            return
        receipt_name = f"{SHARDS}/{receipt.name}.json"
        try:
            if (self.directory / receipt_name).read_bytes() != encode(receipt):
                yield Problem(receipt_name, "differs from what the manifest says of this shard")
        except OSError:
            pass  # reported with the other files
        ids = _mapped(self.directory / names["bin"], np.dtype(self.manifest.dtype).newbyteorder("<"))
        ends = _mapped(self.directory / names["ends"], np.dtype("<i8"))
        positions = _mapped(self.directory / names["pos"], np.dtype("<i8"))
        if len(ends) != receipt.docs or len(positions) != receipt.docs:
            yield Problem(
                names["ends"], f"holds {len(ends):,} ends and {len(positions):,} positions for {receipt.docs:,}"
            )
            return
        if (ends[-1] if len(ends) else 0) != len(ids) or len(ids) != receipt.tokens:
            yield Problem(names["ends"], f"does not close: the last document should end at token {len(ids):,}")
        if len(ends) and (ends[0] < 0 or (np.diff(ends) < 0).any()):
            yield Problem(names["ends"], "document ends do not rise")
        if sum(docs for _, docs in receipt.sources) != receipt.docs:
            yield Problem(receipt_name, "the documents of its sources do not add up")
        top = max((int(ids[i : i + _CHUNK_TOKENS].max()) for i in range(0, len(ids), _CHUNK_TOKENS)), default=-1)
        if top != receipt.max_id or top >= self.manifest.tokenizer.vocab_size:
            yield Problem(names["bin"], f"its largest id is {top}, not {receipt.max_id}, or outside the vocabulary")

    def _conservation(self) -> Iterator[Problem]:
        units = [Counts() for _ in self.manifest.units]
        for split in self.manifest.splits.values():
            for receipt in split.shards:
                if receipt.unit >= len(units):
                    yield Problem(
                        f"{SHARDS}/{receipt.name}.json", f"belongs to unit {receipt.unit}, which is not planned"
                    )
                    continue
                units[receipt.unit] += receipt.counts
                if receipt.counts.written != receipt.docs:
                    yield Problem(f"{SHARDS}/{receipt.name}.json", "counts other documents than it holds")
        total = Counts()
        for unit, (counted, listed) in enumerate(zip(units, self.manifest.units, strict=True)):
            total += counted
            rejects = f"{REJECTS}/{unit:05d}.jsonl"
            if counted != listed:
                yield Problem(
                    MANIFEST, f"unit {unit} does not add up: its receipts say {counted}, the manifest {listed}"
                )
            if counted.read != counted.written + counted.rejected:
                yield Problem(MANIFEST, f"unit {unit} lost records: {counted}")
            if self._rejected(rejects) != counted.rejected:
                yield Problem(rejects, f"does not hold the {counted.rejected:,} rejected records of unit {unit}")
        if total != self.manifest.totals:
            yield Problem(MANIFEST, f"the totals do not add up: {total}")
        try:
            plan = decode((self.directory / PLAN).read_bytes(), Plan, PLAN)
        except (StoreError, OSError):
            return  # reported with the other files
        if len(plan.units) != len(units):
            yield Problem(PLAN, f"has {len(plan.units)} units, the manifest {len(units)}")

    def _rejected(self, name: str) -> int:
        if name not in self.manifest.files:
            return 0
        try:
            rejects = msgspec.json.Decoder(Reject).decode_lines((self.directory / name).read_bytes())
        except (msgspec.DecodeError, UnicodeDecodeError, OSError):
            return -1
        return sum(reject.records for reject in rejects)

    def _strangers(self) -> Iterator[Problem]:
        """Shard files that the manifest does not list: nothing reads them, but they should not be there."""
        listed = {
            f"{receipt.name}.{extension}"
            for split in self.manifest.splits.values()
            for receipt in split.shards
            for extension in (*receipt.files, "json")
        }
        for entry in sorted((self.directory / SHARDS).iterdir()) if (self.directory / SHARDS).is_dir() else []:
            if entry.name not in listed:
                yield Problem(f"{SHARDS}/{entry.name}", "is not listed in the manifest")


def _mapped(path: Path, dtype: np.dtype[Any]) -> Any:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def stored_bytes(path: str | os.PathLike[str]) -> int:
    """About how much there is to check."""
    return sum(entry.stat().st_size for entry in Path(path).rglob("*") if entry.is_file())
