"""Token batches -> shards.

In: documents of one unit and split, in order. Out: `.bin`, `.ends`, `.pos` and a receipt for each shard. A shard ends with
the document that fills it, so its bounds depend on the documents alone and not on how they were batched.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokpress.batches import Int64s, TokenBatch
from tokpress.store.durable import DurableFile, sync_directory, write_file
from tokpress.store.manifest import SHARD_FILES, Counts, FileEntry, Receipt, encode, shard_name


class ShardWriter:
    """Writes one shard after the other. The caller asks `docs_that_fit` and closes a shard where it is full.

    A closed shard is synced by a thread while the next one is written: the disk's time is not the encoder's. Shards come
    into being in order, and `finish` returns when the last one exists.
    """

    def __init__(self, directory: Path, *, split: str, unit: int, shard_bytes: int) -> None:
        self._directory = directory
        self._split = split
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._number = 0
        self._open: dict[str, DurableFile] = {}
        self._syncing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        self._last: Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._docs = self._tokens = 0
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

    def append(self, tokens: TokenBatch, positions: Int64s, sources: npt.NDArray[np.int32]) -> None:
        if not len(tokens):
            return
        self._open_files()
        self._open["bin"].write(tokens.ids)
        self._open["ends"].write((tokens.ends + self._tokens).astype("<i8", copy=False))
        self._open["pos"].write(positions.astype("<i8", copy=False))
        self._docs += len(tokens)
        self._tokens += len(tokens.ids)
        if len(tokens.ids):
            self._max_id = max(self._max_id, int(tokens.ids.max()))
        self._count_sources(sources)

    def _count_sources(self, sources: npt.NDArray[np.int32]) -> None:
        changes = np.flatnonzero(np.diff(sources)) + 1
        for run in np.split(sources, changes):
            index, docs = int(run[0]), len(run)
            if self._sources and self._sources[-1][0] == index:
                docs += self._sources.pop()[1]
            self._sources.append((index, docs))

    def close_shard(self, counts: Counts, next_input: int | None, next_position: int | None) -> Receipt:
        """Ends the shard; it exists a little later. Raises what went wrong with the one before."""
        self._open_files()
        receipt = Receipt(
            split=self._split,
            unit=self._unit,
            number=self._number,
            docs=self._docs,
            tokens=self._tokens,
            max_id=self._max_id,
            files={name: FileEntry(file.bytes, file.checksum) for name, file in self._open.items()},
            sources=self._sources,
            counts=counts,
            next_input=next_input,
            next_position=next_position,
        )
        if self._last is not None:
            self._last.result()
        self._last = self._syncing.submit(self._commit, list(self._open.values()), self._path("json"), receipt)
        self._open = {}
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
        sync_directory(self._directory)
        write_file(receipt_path, encode(receipt))

    def finish(self) -> None:
        if self._last is not None:
            self._last.result()
        self._syncing.shutdown()

    def abort(self) -> None:
        self._syncing.shutdown()
        for file in self._open.values():
            file.abort()

    def _open_files(self) -> None:
        for extension in SHARD_FILES:
            if extension not in self._open:
                self._open[extension] = DurableFile(self._path(extension))

    def _path(self, extension: str) -> Path:
        return self._directory / f"{shard_name(self._split, self._unit, self._number)}.{extension}"
