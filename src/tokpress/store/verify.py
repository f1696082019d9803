"""Whether a store is what its manifest says.

In: a store's directory. Out: a `Report` that names every damaged file. Checked are the size and checksum of every file,
the counts, that the document ends rise and close, that every id is in the vocabulary, and that no record was lost:
read = written + rejected in every unit. What a checksum covers is looked into only after the checksum is found right.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from tokpress.errors import StoreError
from tokpress.records import (
    KEPT,
    MANIFEST,
    MASK,
    PLAN,
    REJECTS,
    SHARDS,
    TOKENIZER,
    TRAIN,
    Counts,
    FileEntry,
    Manifest,
    Plan,
    Receipt,
    Reject,
    rejects_name,
    shard_name,
)
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.storage.guarded import is_of_another_run
from tokpress.store.manifest import fingerprint, is_intact, read_manifest, read_record
from tokpress.store.reader import tokenizer_files
from tokpress.store.receipts import stored_forms
from tokpress.store.shard import Shard


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
    not_reencoded: str = ""  # and why others were not
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_store(
    place: str | os.PathLike[str] | Storage, *, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Checks a whole store; `progress` is told the bytes just checked and those of the whole store.

    Raises StoreError only if there is no store at all.
    """
    storage = open_storage(place)
    if not storage.exists(MANIFEST):
        read_manifest(storage)  # raises, and says what is missing
    try:
        manifest = read_manifest(storage)
        data = storage.read(MANIFEST)
    except StoreError as error:
        return _only_manifest(storage, str(error))
    if not is_intact(manifest, data):
        return _only_manifest(storage, "its checksum does not match: it was changed after the build")
    check = _Check(storage, manifest, progress)
    problems = list(check.run())
    return Report(
        path=storage.url,
        files=len(check.entries) + 1,
        bytes=check.bytes + len(data),
        docs=sum(split.docs for split in manifest.splits.values()),
        tokens=sum(split.tokens for split in manifest.splits.values()),
        problems=problems,
    )


def _only_manifest(storage: Storage, message: str) -> Report:
    size = storage.size(MANIFEST)
    return Report(path=storage.url, files=1, bytes=size, docs=0, tokens=0, problems=[Problem(MANIFEST, message)])


class _Check:
    """One pass over a store whose manifest is intact."""

    def __init__(self, storage: Storage, manifest: Manifest, progress: Callable[[int, int], None] | None) -> None:
        self.storage = storage
        self.manifest = manifest
        self.progress = progress
        self.shards = [receipt for split in manifest.splits.values() for receipt in split.shards]
        self.entries = manifest.files | {
            receipt.path(extension): entry for receipt in self.shards for extension, entry in receipt.files.items()
        }
        self.total = sum(entry.bytes for entry in self.entries.values())
        self.bytes = 0
        self.sound: set[str] = set()  # files with the right bytes

    def run(self) -> Iterator[Problem]:
        for name, entry in self.entries.items():
            yield from self._file(name, entry)
        yield from self._listing()
        for name, forms in stored_forms(self.shards):
            if name in self.sound and self.storage.read(name) not in forms:
                yield Problem(name, "differs from what the manifest says of this shard")
        for receipt in self.shards:
            yield from self._shard(receipt)
        yield from self._splits()
        yield from self._units()
        yield from self._plan()
        yield from self._meaning()

    def _file(self, name: str, entry: FileEntry) -> Iterator[Problem]:
        try:
            found = self.storage.stat(name)
            if found is None:
                yield Problem(name, "is missing")
                return
            if found.size != entry.bytes:
                yield Problem(name, f"has {found.size:,} bytes instead of {entry.bytes:,}")
            elif self.storage.checksum(name) != entry.xxh3:
                yield Problem(name, "its checksum does not match: the bytes were changed")
            else:
                self.sound.add(name)
            self.bytes += found.size
        except OSError as error:
            yield Problem(name, f"cannot be read: {error.strerror}")
        if self.progress is not None:
            self.progress(entry.bytes, self.total)

    def _listing(self) -> Iterator[Problem]:
        """The manifest lists every file that a store must have, and there are no others."""
        for name in (PLAN, *(receipt.path("json") for receipt in self.shards)):
            if name not in self.entries:
                yield Problem(name, "is not listed in the manifest: nothing vouches for it")
        places = {receipt.path("json") for receipt in self.shards}
        places |= {f"{REJECTS}/{rejects_name(receipt.unit, receipt.number)}" for receipt in self.shards}
        for name in self.manifest.files:
            if name.startswith((f"{SHARDS}/", f"{REJECTS}/")) and name not in places:
                yield Problem(name, "is listed in the manifest, but belongs to none of its shards")
        for prefix in (SHARDS, REJECTS, TOKENIZER):
            for name in self.storage.list(prefix):
                if name not in self.entries and not is_of_another_run(self.storage, name, MANIFEST):
                    yield Problem(name, "is not listed in the manifest: no part of this store")

    def _shard(self, receipt: Receipt) -> Iterator[Problem]:
        receipt_name, bin_name, ends_name = (receipt.path(extension) for extension in ("json", "bin", "ends"))
        if receipt.counts.written + receipt.continued != receipt.docs:
            yield Problem(receipt_name, "counts other documents than it holds")
        if sum(docs for _, docs in receipt.sources) != receipt.docs:
            yield Problem(receipt_name, "the documents of its sources do not add up")
        rejects_file = f"{REJECTS}/{rejects_name(receipt.unit, receipt.number)}"
        listed = self._rejects(rejects_file) if receipt.split == TRAIN else Counter[str]()
        if listed is not None and dict(listed) != receipt.rejects:
            yield Problem(rejects_file, f"holds {dict(listed)}, but its shard's receipt says {receipt.rejects}")
        elif listed is None and rejects_file in self.sound:
            yield Problem(rejects_file, "is not a list of rejected records")
        if sum(receipt.rejects.values()) != receipt.counts.rejected:
            yield Problem(receipt_name, "the reasons of its rejects do not add up")
        if not all(receipt.path(extension) in self.sound for extension in receipt.files):
            return
        try:
            shard = Shard(self.storage, receipt, np.dtype(self.manifest.dtype).newbyteorder("<"))
        except StoreError:
            yield Problem(receipt_name, "counts other documents or tokens than its files hold")
            return
        if KEPT in receipt.files:
            yield from self._kept(receipt)
        if shard.mask is not None or receipt.loss_tokens is not None:
            yield from _mask_problems(receipt, shard)
        if _continued(receipt, shard) != receipt.continued:
            yield Problem(
                receipt.path("pos"), f"does not show the {receipt.continued:,} continued records of its receipt"
            )
        ends = shard.stored_ends
        if (ends[-1] if len(ends) else 0) != len(shard.ids):
            yield Problem(ends_name, f"does not close: the last document should end at token {len(shard.ids):,}")
        if len(ends) and (ends[0] < 0 or (ends[1:] < ends[:-1]).any()):
            yield Problem(ends_name, "document ends do not rise")
        top = int(shard.ids.max()) if len(shard.ids) else -1
        if top >= self.manifest.tokenizer.vocab_size:
            vocab_size = self.manifest.tokenizer.vocab_size
            yield Problem(bin_name, f"holds id {top}, which is outside the vocabulary of {vocab_size:,} tokens")
        if top != receipt.max_id:
            yield Problem(bin_name, f"its largest id is {top}, its receipt says {receipt.max_id}")

    def _kept(self, receipt: Receipt) -> Iterator[Problem]:
        from tokpress.store.kept import count_kept

        name = receipt.path(KEPT)
        rows = count_kept(self.storage, name)
        if rows is None:
            yield Problem(name, "is not a Parquet file")
        elif rows != receipt.docs:
            yield Problem(name, f"has {rows:,} rows for {receipt.docs:,} documents")

    def _splits(self) -> Iterator[Problem]:
        for name, split in self.manifest.splits.items():
            docs = sum(receipt.docs for receipt in split.shards)
            tokens = sum(receipt.tokens for receipt in split.shards)
            loss_tokens = sum(receipt.loss_tokens or 0 for receipt in split.shards)
            pieces = (
                sum(receipt.continued for receipt in split.shards),
                sum(receipt.truncated for receipt in split.shards),
            )
            if (loss_tokens, *pieces) != (split.loss_tokens or 0, split.continued, split.truncated):
                yield Problem(MANIFEST, f"split {name} does not add up: loss tokens, continued or truncated records")
            if (docs, tokens) != (split.docs, split.tokens):
                yield Problem(
                    MANIFEST,
                    f"split {name} does not add up: its shards hold {docs:,} documents and {tokens:,} tokens, "
                    f"not {split.docs:,} and {split.tokens:,}",
                )
            yield from self._chain(name, split.shards) if name == TRAIN else self._beside(name, split.shards)
        if TRAIN not in self.manifest.splits:
            yield Problem(MANIFEST, f"has no split {TRAIN!r}, which says where its units end")
        for receipt in self.shards:
            if receipt.beside and receipt.split != TRAIN:
                yield Problem(receipt.path("json"), f"names shards beside it, which only one of {TRAIN!r} does")

    def _beside(self, split: str, shards: list[Receipt]) -> Iterator[Problem]:
        """The shards of another split are those that the shards of `train` name, and end where they do."""
        train = self.manifest.splits[TRAIN].shards if TRAIN in self.manifest.splits else []
        expected = [
            (receipt.unit, receipt.number, receipt.next_input, receipt.next_position)
            for receipt in train
            if split in receipt.beside
        ]
        found = [(receipt.unit, receipt.number, receipt.next_input, receipt.next_position) for receipt in shards]
        if found != expected:
            yield Problem(
                MANIFEST, f"the shards of split {split} are not those that the shards of {TRAIN} say there are"
            )

    def _chain(self, split: str, shards: list[Receipt]) -> Iterator[Problem]:
        """Shards stand in order and none is left out: each receipt says whether its unit goes on."""
        unit = number = 0
        for receipt in shards:
            if (receipt.unit, receipt.number) != (unit, number):
                break
            unit, number = (unit + 1, 0) if receipt.next_input is None else (unit, number + 1)
        else:
            if (unit, number) == (len(self.manifest.units), 0):
                return
        yield Problem(MANIFEST, f"shard {shard_name(split, unit, number)} is not where it should be listed")

    def _units(self) -> Iterator[Problem]:
        """No record was lost: read = written + rejected, in every unit and in all."""
        counted = [Counts() for _ in self.manifest.units]
        for receipt in self.shards:
            if receipt.unit < len(counted):  # else the chain is broken, and was reported
                counted[receipt.unit] += receipt.counts
        for unit, (counts, listed) in enumerate(zip(counted, self.manifest.units, strict=True)):
            if counts != listed:
                yield Problem(MANIFEST, f"unit {unit} does not add up: {listed}, but its receipts say {counts}")
            if counts.read != counts.written + counts.rejected:
                yield Problem(MANIFEST, f"unit {unit} lost records: {counts}")
        total = sum(counted, Counts())
        if total != self.manifest.totals:
            yield Problem(MANIFEST, f"the totals do not add up: {self.manifest.totals}, but the units have {total}")
        reasons = sum((Counter(receipt.rejects) for receipt in self.shards), Counter[str]())
        if dict(reasons) != self.manifest.rejects:
            yield Problem(MANIFEST, f"counts rejects as {self.manifest.rejects}, but its receipts as {dict(reasons)}")

    def _rejects(self, name: str) -> Counter[str] | None:
        """Rejected records by reason; None if there should be a file of them and it cannot be read."""
        reasons: Counter[str] = Counter()
        if name not in self.entries:
            return reasons
        if name not in self.sound:
            return None
        decoder = msgspec.json.Decoder(Reject)
        try:
            with self.storage.open(name) as file:
                for line in io.BufferedReader(file):
                    reject = decoder.decode(line)
                    reasons[reject.reason] += reject.records
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return reasons

    def _plan(self) -> Iterator[Problem]:
        if PLAN not in self.sound:
            return
        try:
            plan = read_record(self.storage, PLAN, Plan)
        except StoreError as error:
            yield Problem(PLAN, str(error))
            return
        if len(plan.units) != len(self.manifest.units):
            yield Problem(PLAN, f"has {len(plan.units):,} units, the manifest {len(self.manifest.units):,}")
        if plan.tokenizer != self.manifest.tokenizer:
            yield Problem(PLAN, "is for another tokenizer than the manifest")
        for receipt in self.shards:
            if any(source >= len(plan.inputs) for source, _ in receipt.sources):
                yield Problem(receipt.path("json"), "names an input that is not in the plan")

    def _meaning(self) -> Iterator[Problem]:
        """Fingerprints say what the ids mean: they must be those of the files that are here."""
        names = {name for name in self.manifest.files if name.startswith(f"{TOKENIZER}/")}
        if names <= self.sound:
            files = tokenizer_files(self.storage, self.manifest)
            if files.fingerprint != self.manifest.tokenizer.fingerprint:
                yield Problem(TOKENIZER, "its files are not those of the tokenizer that the manifest names")
        if fingerprint(self.manifest) != self.manifest.fingerprint:
            yield Problem(MANIFEST, "its fingerprint is not that of the tokens it lists")


def _mask_problems(receipt: Receipt, shard: Shard) -> Iterator[Problem]:
    """A mask holds 0 and 1, and as many of these as its receipt says. That there is one for each token, its size says."""
    name = receipt.path(MASK)
    if shard.mask is None or receipt.loss_tokens is None:
        yield Problem(name, "a mask and the number of loss tokens go together: one of them is missing")
    elif len(shard.mask) and shard.mask.max() > 1:
        yield Problem(name, f"holds {shard.mask.max()}, but a mask is made of 0 and 1")
    elif int(np.count_nonzero(shard.mask)) != receipt.loss_tokens:
        yield Problem(name, f"marks {np.count_nonzero(shard.mask):,} tokens, its receipt says {receipt.loss_tokens:,}")


def _continued(receipt: Receipt, shard: Shard) -> int:
    """Documents that come from the same place as the one before: a record that was split."""
    same = shard.positions[1:] == shard.positions[:-1]
    borders = np.cumsum([docs for _, docs in receipt.sources], dtype=np.int64)[:-1]  # where another input begins
    same[borders[(borders > 0) & (borders <= len(same))] - 1] = False
    return int(np.count_nonzero(same))
