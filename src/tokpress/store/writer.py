"""Token batches -> shards.

In: documents and rejects of one unit and split, in order. Out: `.bin`, `.ends`, `.pos`, with --keep `.docs.parquet`, the
rejects, and a receipt for each shard. A shard ends with the document that fills it, so its bounds depend on the documents
alone and not on how they were batched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.batches import Int64s, Reject, TokenBatch
from tokpress.store.durable import DurableFile, sync_directory, write_file
from tokpress.store.manifest import (
    KEPT,
    REJECTS,
    SHARD_FILES,
    SHARDS,
    Counts,
    FileEntry,
    Receipt,
    encode,
    rejects_name,
    shard_name,
)

if TYPE_CHECKING:
    from tokpress.store.kept import KeptWriter


class ShardWriter:
    """Writes one shard after the other. The caller asks `docs_that_fit` and closes a shard where it is full.

    A closed shard is synced by a thread while the next one is written: the disk's time is not the encoder's. Shards come
    into being in order, and `finish` returns when the last one exists.
    """

    def __init__(
        self,
        store: Path,
        *,
        split: str,
        unit: int,
        shard_bytes: int,
        first_shard: int = 0,
        keep: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._split = split
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._number = first_shard
        self._keep = keep
        self._syncing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        self._last: Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._open: dict[str, DurableFile] = {}
        self._kept: KeptWriter | None = None
        self._rejected: DurableFile | None = None  # made when there is something to put into it
        self._reasons: Counter[str] = Counter()
        self._docs = self._tokens = self._audited = 0
        self._max_id = -1
        self._sources: list[tuple[int, int]] = []

    @property
    def is_full(self) -> bool:
        return "bin" in self._open and self._open["bin"].bytes >= self._shard_bytes

    def docs_that_fit(self, tokens: TokenBatch) -> int:
        """How many of these go into the current shard: up to and with the one that fills it."""
        written = self._open["bin"].bytes if self._open else 0
        room = -(-(self._shard_bytes - written) // tokens.ids.itemsize)  # tokens until the shard is full
        return min(int(np.searchsorted(tokens.ends, room, "left")) + 1, len(tokens))

    def append(
        self,
        tokens: TokenBatch,
        positions: Int64s,
        sources: npt.NDArray[np.int32],
        *,
        audited: int = 0,
        kept: pa.RecordBatch | None = None,
    ) -> None:
        if not len(tokens):
            return
        self._open_files()
        if self._kept is not None and kept is not None:
            self._kept.append(kept)
        self._open["bin"].write(tokens.ids)
        self._open["ends"].write((tokens.ends + self._tokens).astype("<i8", copy=False))
        self._open["pos"].write(positions.astype("<i8", copy=False))
        self._docs += len(tokens)
        self._tokens += len(tokens.ids)
        self._audited += audited
        if len(tokens.ids):
            self._max_id = max(self._max_id, int(tokens.ids.max()))
        self._count_sources(sources)

    def reject(self, rejects: Sequence[Reject]) -> None:
        if not rejects:
            return
        if self._rejected is None:
            self._rejected = DurableFile(self._store / REJECTS / rejects_name(self._unit, self._number))
        self._rejected.write(msgspec.json.Encoder().encode_lines(rejects))
        for reject in rejects:
            self._reasons[reject.reason] += reject.records

    def _count_sources(self, sources: npt.NDArray[np.int32]) -> None:
        changes = np.flatnonzero(np.diff(sources)) + 1
        for run in np.split(sources, changes):
            index, docs = int(run[0]), len(run)
            if self._sources and self._sources[-1][0] == index:
                docs += self._sources.pop()[1]
            self._sources.append((index, docs))

    def close_shard(self, next_place: tuple[int, int] | None) -> Receipt:
        """Ends the shard; it exists a little later. `next_place` is where the unit goes on; None: it is at its end.

        Raises what went wrong with the shard before.
        """
        self._open_files()
        if self._kept is not None:
            self._kept.finish()
        rejected = self._reasons.total()
        receipt = Receipt(
            split=self._split,
            unit=self._unit,
            number=self._number,
            docs=self._docs,
            tokens=self._tokens,
            max_id=self._max_id,
            files={name: FileEntry(file.bytes, file.checksum) for name, file in self._open.items()},
            sources=self._sources,
            counts=Counts(read=self._docs + rejected, written=self._docs, rejected=rejected),
            rejects=dict(sorted(self._reasons.items())),
            audited=self._audited,
            next_input=next_place[0] if next_place else None,
            next_position=next_place[1] if next_place else None,
        )
        self._wait()
        files = [*self._open.values(), *([self._rejected] if self._rejected else [])]
        self._last = self._syncing.submit(self._commit, files, self._path("json"), receipt)
        self._number += 1
        self._begin()
        return receipt

    def _commit(self, files: list[DurableFile], receipt_path: Path, receipt: Receipt) -> None:
        try:
            for file in files:
                file.commit()
        except BaseException:
            for file in files:
                file.abort()
            raise
        for directory in {file.path.parent for file in files}:
            sync_directory(directory)
        write_file(receipt_path, encode(receipt))

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def finish(self) -> None:
        self._wait()
        self._syncing.shutdown()

    def abort(self) -> None:
        self._syncing.shutdown()
        for file in (*self._open.values(), *([self._rejected] if self._rejected else [])):
            file.abort()

    def _open_files(self) -> None:
        for extension in SHARD_FILES:
            if extension not in self._open:
                self._open[extension] = DurableFile(self._path(extension))
        if self._keep and self._kept is None:
            from tokpress.store.kept import KeptWriter  # and with it all of Parquet

            self._open[KEPT] = DurableFile(self._path(KEPT))
            self._kept = KeptWriter(self._open[KEPT], self._keep)

    def _path(self, extension: str) -> Path:
        return self._store / SHARDS / f"{shard_name(self._split, self._unit, self._number)}.{extension}"
