"""One unit -> its shards.

In: a plan and the number of a unit. Out: shards with receipts, and the unit's rejects. This loop is all that a worker
does: read a batch, encode it, audit a little of it, frame it, append it; no Python object per document anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tokpress.batches import Reject, TextBatch, TokenBatch, concat_text
from tokpress.config import ReadConfig
from tokpress.engines.base import Engine
from tokpress.engines.framing import Frame
from tokpress.engines.parity import Auditor
from tokpress.errors import TooManyRejects
from tokpress.run.progress import StageClock
from tokpress.sources.base import open_reader
from tokpress.store.durable import DurableFile, sync_directory
from tokpress.store.manifest import REJECTS, SHARDS, Counts, Plan, Receipt, Slice
from tokpress.store.writer import ShardWriter

_MAX_HELD_REJECTS = 1000
OnBatch = Callable[[TextBatch, TokenBatch], None]


@dataclass(slots=True)
class UnitResult:
    receipts: list[Receipt] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> Counts:
        return sum((receipt.counts for receipt in self.receipts), Counts())


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """All that encoding a unit takes; made once, used for many units."""

    directory: Path
    plan: Plan
    read: ReadConfig
    engine: Engine
    frame: Frame
    auditor: Auditor | None
    threads: int
    batch_bytes: int
    shard_bytes: int
    clock: StageClock

    def run(self, unit: int, on_batch: OnBatch) -> UnitResult:
        result = UnitResult()
        writer = ShardWriter(self.directory / SHARDS, split="train", unit=unit, shard_bytes=self.shard_bytes)
        rejected = _RejectFile(self.directory / REJECTS / f"{unit:05d}.jsonl")
        try:
            counts = Counts()
            self.clock.start("read")
            for batch in _coalesce(self._batches(self.plan.units[unit]), self.batch_bytes):
                self.clock.start("encode")
                tokens = self.engine.encode(batch.text, threads=self.threads)
                if self.auditor is not None:
                    self.clock.start("audit")
                    self.auditor.check(batch, tokens)
                self.clock.start("write")
                framed = self.frame.apply(tokens)
                counts = self._write(writer, batch, framed, counts, result.receipts)
                rejected.write(batch.rejects)
                for reject in batch.rejects:
                    result.rejects[reject.reason] += reject.records
                on_batch(batch, framed)
                del batch, tokens, framed  # before the next batch is read: two large ones need not fit
                self.clock.start("read")
            self.clock.start("write")
            rejected.commit()
            result.receipts.append(writer.close_shard(counts, None, None))
            writer.finish()
            self.clock.stop()
        except TooManyRejects:
            writer.abort()
            rejected.commit()  # they are what the user has to look at
            raise
        except BaseException:
            writer.abort()
            rejected.abort()
            raise
        return result

    def _batches(self, unit: list[Slice]) -> Iterator[TextBatch]:
        for piece in unit:
            reader = open_reader(self.plan.inputs[piece.input], piece.input, self.read, self.batch_bytes)
            yield from reader.read(piece.start, piece.stop)

    def _write(
        self, writer: ShardWriter, batch: TextBatch, tokens: TokenBatch, counts: Counts, receipts: list[Receipt]
    ) -> Counts:
        """Appends a batch, closing shards on the way. A full shard is closed when the next document comes: only then is
        it known where to go on. Returns what was read and written since the last one was closed."""
        written = 0
        rejects = batch.rejects
        while written < len(tokens):
            if writer.is_full:
                here = (int(batch.sources[written]), int(batch.positions[written]))
                before = [reject for reject in rejects if (reject.input, reject.position) < here]
                rejects = rejects[len(before) :]
                receipts.append(writer.close_shard(counts + _rejected(before), *here))
                counts = Counts()
            rest = _from(tokens, written)
            taken = writer.docs_that_fit(rest)
            stop = written + taken
            writer.append(_first(rest, taken), batch.positions[written:stop], batch.sources[written:stop])
            counts += Counts(read=taken, written=taken)
            written = stop
        return counts + _rejected(rejects)


def _rejected(rejects: list[Reject]) -> Counts:
    records = sum(reject.records for reject in rejects)
    return Counts(read=records, rejected=records)


def _from(tokens: TokenBatch, doc: int) -> TokenBatch:
    if not doc:
        return tokens
    start = int(tokens.ends[doc - 1])
    return TokenBatch(tokens.ids[start:], tokens.ends[doc:] - start)


def _first(tokens: TokenBatch, docs: int) -> TokenBatch:
    return TokenBatch(tokens.ids[: int(tokens.ends[docs - 1])], tokens.ends[:docs])


def _coalesce(batches: Iterator[TextBatch], min_bytes: int) -> Iterator[TextBatch]:
    """Joins batches that are much smaller than an engine call is worth: those of many small files, or few rows.

    Rejects do not pile up here: a file of nothing else stops the run at once, not at its end.
    """
    held: list[TextBatch] = []
    held_bytes = held_rejects = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.text_bytes
        held_rejects += len(batch.rejects)
        del batch
        if held_bytes >= min_bytes // 2 or held_rejects >= _MAX_HELD_REJECTS:
            joined = [concat_text(held)]
            held, held_bytes, held_rejects = [], 0, 0
            yield joined.pop()
    if held:
        yield concat_text(held)


class _RejectFile:
    """`rejects/NNNNN.jsonl`, made when there is something to put into it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: DurableFile | None = None

    def write(self, rejects: list[Reject]) -> None:
        if rejects:
            self._file = self._file or DurableFile(self._path)
            self._file.write(msgspec.json.Encoder().encode_lines(rejects))

    def commit(self) -> None:
        if self._file is not None:
            self._file.commit()
            sync_directory(self._path.parent)

    def abort(self) -> None:
        if self._file is not None:
            self._file.abort()
