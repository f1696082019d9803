"""Document batches -> shards.

In: documents and rejects of one unit, in order. Out: `.bin`, `.ends`, `.pos`, with masks `.mask`, with --keep
`.docs.parquet`, the rejects, and a receipt for each shard. A shard ends with the record that fills it, so its bounds depend
on the documents alone and not on how they were batched. Documents of several splits go into a shard for each, and all of
these end together: at the record with which they are full, taken together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from tokpress.batches import DocumentBatch, count
from tokpress.errors import StoreError
from tokpress.records import (
    KEPT,
    MASK,
    REJECTS,
    SHARD_FILES,
    SHARDS,
    TRAIN,
    Counts,
    FileEntry,
    Receipt,
    Reject,
    rejects_name,
    shard_name,
)
from tokpress.storage.base import Storage, Upload, parent_of
from tokpress.storage.once import create_or_read
from tokpress.store.manifest import differences, encode
from tokpress.store.receipts import StoredReceipt, as_stored

if TYPE_CHECKING:
    from tokpress.store.kept import KeptWriter


class _OpenShard:
    """The files of one shard while they are written, and what is in them so far."""

    def __init__(self, storage: Storage, key: str, keep: Sequence[str], *, masks: bool) -> None:
        extensions = [*SHARD_FILES, *([MASK] if masks else []), *([KEPT] if keep else [])]
        self.files: dict[str, Upload] = {}
        try:
            for name in extensions:
                self.files[name] = storage.create(f"{key}.{name}")
        except BaseException:
            for file in self.files.values():
                file.abort()
            raise
        self._kept: KeptWriter | None = None
        if keep:
            from tokpress.store.kept import KeptWriter  # and with it all of Parquet

            self._kept = KeptWriter(self.files[KEPT], keep)
        self.docs = self.tokens = self.audited = self.continued = self.truncated = self.loss_tokens = 0
        self.max_id = -1
        self.sources: list[tuple[int, int]] = []

    def append(self, docs: DocumentBatch) -> None:
        tokens = docs.tokens
        if self._kept is not None and docs.kept is not None:
            self._kept.append(docs.kept)
        self.files["bin"].write(tokens.ids)
        self.files["ends"].write((tokens.ends + self.tokens).astype("<i8", copy=False))
        self.files["pos"].write(docs.positions.astype("<i8", copy=False))
        if docs.mask is not None:
            self.files[MASK].write(np.ascontiguousarray(docs.mask))
            self.loss_tokens += int(np.count_nonzero(docs.mask))
        self.docs += len(docs)
        self.tokens += len(tokens.ids)
        self.audited += count(docs.audited)
        self.continued += count(docs.continued)
        self.truncated += count(docs.truncated)
        if len(tokens.ids):
            self.max_id = max(self.max_id, int(tokens.ids.max()))
        count_sources(self.sources, docs.sources)

    def finish(self) -> dict[str, FileEntry]:
        if self._kept is not None:
            self._kept.finish()
        return {name: FileEntry(file.bytes, file.checksum) for name, file in self.files.items()}


def count_sources(runs: list[tuple[int, int]], sources: npt.NDArray[np.int32]) -> None:
    """Adds the inputs of some documents to runs of (input, documents)."""
    changes = np.flatnonzero(np.diff(sources)) + 1
    for run in np.split(sources, changes):
        index, docs = int(run[0]), len(run)
        if runs and runs[-1][0] == index:
            docs += runs.pop()[1]
        runs.append((index, docs))


class ShardWriter:
    """Writes one shard after the other. The caller asks `docs_that_fit` and closes a shard where it is full.

    A closed shard is synced by a thread while the next one is written: the disk's time is not the encoder's. Shards come
    into being in order, and `finish` returns when the last one exists.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        unit: int,
        shard_bytes: int,
        first_shard: int = 0,
        earlier: Sequence[Receipt] = (),
        splits: Sequence[str] = (TRAIN,),
        keep: Sequence[str] = (),
        masks: bool = False,
        before_receipt: Callable[[], None] = lambda: None,
        before_create: Callable[[], None] | None = None,
    ) -> None:
        """`splits` are the names for the numbers in a batch; more may come while it is written. The first is `train`.
        `earlier` are the receipts of the shards before the first.

        `before_receipt` raises if what was appended must not be vouched for. `before_create`: others may write the same
        shards. It is called when a receipt is about to be; that is never replaced, and one that is there has to be equal.
        """
        self._storage = storage
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._number = first_shard
        self._splits = splits
        self._keep = keep
        self._masks = masks
        self._before_receipt = before_receipt
        self._before_create = before_create
        self._syncing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        self._last: Future[None] | None = None
        self._earlier = earlier
        self.receipts: list[Receipt] = []  # of all shards that were closed; of each number `train` last
        self._begin()

    def _begin(self) -> None:
        self._open: dict[str, _OpenShard] = {}  # by split
        self._bytes = 0  # of ids, in all of them
        self._rejected: Upload | None = None  # made when there is something to put into it
        self._reasons: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return bool(self._open) and self._bytes >= self._shard_bytes

    def docs_that_fit(self, docs: DocumentBatch) -> int:
        """How many of these go into the current shard: up to and with the record that fills it."""
        tokens = docs.tokens
        room = -(-(self._shard_bytes - self._bytes) // tokens.ids.itemsize)  # tokens until the shard is full
        fitting = min(int(np.searchsorted(tokens.ends, room, "left")) + 1, len(tokens))
        if docs.continued is not None:
            while fitting < len(docs) and docs.continued[fitting]:
                fitting += 1
        return fitting

    def append(self, docs: DocumentBatch) -> None:
        if not len(docs):
            return
        self._bytes += docs.tokens.ids.nbytes
        if docs.splits is None:
            self._shard(TRAIN).append(docs)
            return
        for number in np.unique(docs.splits).tolist():
            self._shard(self._splits[number]).append(docs.take(np.flatnonzero(docs.splits == number)))

    def reject(self, rejects: Sequence[Reject]) -> None:
        if not rejects:
            return
        if self._rejected is None:
            self._rejected = self._storage.create(f"{REJECTS}/{rejects_name(self._unit, self._number)}")
        self._rejected.write(msgspec.json.Encoder().encode_lines(rejects))
        for reject in rejects:
            self._reasons[reject.reason] += reject.records

    def close_shard(self, next_place: tuple[int, int] | None) -> Receipt:
        """Ends the shards; they exist a little later. `next_place` is where the unit goes on; None: it is at its end.

        Gives the receipt of `train`. Raises what went wrong with the shards before.
        """
        self._before_receipt()
        self._shard(TRAIN)  # which speaks for the others
        others = sorted(self._open.keys() - {TRAIN})
        receipts = [self._receipt(split, (), next_place) for split in others]
        receipts.append(self._receipt(TRAIN, tuple(others), next_place))
        self._wait()
        rejected = [self._rejected] if self._rejected else []
        files = [file for shard in self._open.values() for file in shard.files.values()]
        known = [*self._earlier, *self.receipts, *receipts[:-1]]
        records = [as_stored(receipt, known) for receipt in receipts]
        self._last = self._syncing.submit(self._commit, [*files, *rejected], records)
        self.receipts += receipts
        self._number += 1
        self._begin()
        return receipts[-1]

    def _receipt(self, split: str, beside: tuple[str, ...], next_place: tuple[int, int] | None) -> Receipt:
        shard = self._open[split]
        reasons = self._reasons if split == TRAIN else Counter[str]()
        written, rejected = shard.docs - shard.continued, reasons.total()
        return Receipt(
            split=split,
            unit=self._unit,
            number=self._number,
            docs=shard.docs,
            tokens=shard.tokens,
            max_id=shard.max_id,
            files=shard.finish(),
            sources=shard.sources,
            counts=Counts(read=written + rejected, written=written, rejected=rejected),
            rejects=dict(sorted(reasons.items())),
            audited=shard.audited,
            next_input=next_place[0] if next_place else None,
            next_position=next_place[1] if next_place else None,
            beside=beside,
            continued=shard.continued,
            truncated=shard.truncated,
            loss_tokens=shard.loss_tokens if self._masks else None,
        )

    def _commit(self, files: list[Upload], receipts: list[StoredReceipt]) -> None:
        try:
            for file in files if not self._was_written(receipts[-1]) else []:
                file.commit()
        except BaseException:
            for file in files:
                file.abort()
            raise
        self._storage.barrier(*{parent_of(file.key) for file in files})
        for receipt in receipts:
            self._put(receipt)

    def _was_written(self, train: StoredReceipt) -> bool:
        """Whether another machine was first: then what stands there is vouched for, and stays as it is."""
        if self._before_create is None:
            return False
        self._before_create()
        return self._storage.exists(train.path("json"))

    def _put(self, receipt: StoredReceipt) -> None:
        key, data = receipt.path("json"), encode(receipt)
        if self._before_create is not None:
            self._before_create()
        elif self._storage.has_lock:  # which keeps a second writer out
            self._storage.put(key, data)
            return
        found = create_or_read(self._storage, key, data)
        if found != data:
            raise StoreError(
                f"{self._storage.location(key)} was written by another machine and says otherwise:"
                f"{differences(msgspec.json.decode(found), msgspec.json.decode(data))}\n"
                "Both cannot be right, so nothing goes on. Are the inputs the same everywhere? Begin anew: --overwrite"
            )

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def finish(self) -> None:
        self._wait()
        self._syncing.shutdown()

    def abort(self) -> None:
        self._syncing.shutdown()
        open_files = [file for shard in self._open.values() for file in shard.files.values()]
        for file in (*open_files, *([self._rejected] if self._rejected else [])):
            file.abort()

    def _shard(self, split: str) -> _OpenShard:
        if split not in self._open:
            key = f"{SHARDS}/{shard_name(split, self._unit, self._number)}"
            self._open[split] = _OpenShard(self._storage, key, self._keep, masks=self._masks)
        return self._open[split]


class NoWriter:
    """Takes what a `ShardWriter` takes, and writes nothing: for a look at what a run would do."""

    def __init__(self) -> None:
        self.is_full = False
        self.receipts: list[Receipt] = []

    def docs_that_fit(self, docs: DocumentBatch) -> int:
        return len(docs)

    def append(self, docs: DocumentBatch) -> None: ...

    def reject(self, rejects: Sequence[Reject]) -> None: ...

    def close_shard(self, next_place: tuple[int, int] | None) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...


def write_batch(writer: ShardWriter | NoWriter, docs: DocumentBatch, rejects: list[Reject]) -> None:
    """Appends a batch, closing shards on the way.

    A full shard is closed when the next document comes: only then is it known where its unit goes on.
    """
    written = 0
    while written < len(docs):
        if writer.is_full:
            here = int(docs.sources[written]), int(docs.positions[written])
            before = [reject for reject in rejects if (reject.input, reject.position) < here]
            rejects = rejects[len(before) :]
            writer.reject(before)
            writer.close_shard(here)
        rest = docs.part(written, len(docs)) if written else docs
        fitting = writer.docs_that_fit(rest)
        writer.append(rest.part(0, fitting) if fitting < len(rest) else rest)
        written += fitting
    writer.reject(rejects)
