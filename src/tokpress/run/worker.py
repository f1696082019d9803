"""One unit -> its shards.

In: a `Job` (once) and `Task`s. Out: shards with receipts, and what happens, as messages. This loop is all that a worker
does: read a batch, render it, encode it, audit a little of it, shape it, append it; no Python object per document anywhere,
unless its template is Python or a batch has to be taken apart because a document in it kills the tokenizer.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

import msgspec
import psutil
import pyarrow as pa

from tokpress.batches import DocumentBatch, TextBatch, TokenBatch, in_order
from tokpress.documents.base import Rendered, concat_rendered
from tokpress.documents.batching import coalesce, place, set_aside
from tokpress.documents.frame import frame_for
from tokpress.documents.shape import Shaper, first_records
from tokpress.documents.splits import Splitter
from tokpress.documents.templates import is_code, reading
from tokpress.engines.base import Engine, concat_tokens
from tokpress.engines.choice import choose_engine, engine_named
from tokpress.engines.load import reference_engine
from tokpress.engines.parity import Auditor
from tokpress.engines.table import fast_for
from tokpress.errors import CannotEncode, TokenizerError
from tokpress.records import ON_REQUEST, Input, Reject
from tokpress.run.budget import READ_COST, read_ahead_bytes
from tokpress.run.clock import StageClock
from tokpress.run.gate import Gate
from tokpress.run.messages import (
    Advanced,
    Done,
    Encoded,
    Encoding,
    FirstDocument,
    Job,
    Order,
    Preload,
    Prepare,
    Prepared,
    Reply,
    Sampling,
    Settings,
    Settle,
    Task,
)
from tokpress.run.profiles import write_part
from tokpress.run.quarantine import check_verdicts
from tokpress.run.refused import encode_or_reject
from tokpress.run.sample_judge import SampleJudge
from tokpress.sources.base import Growing, open_reader
from tokpress.sources.files import check_unchanged
from tokpress.sources.sample import sample_texts
from tokpress.storage import open_run
from tokpress.storage.base import Storage
from tokpress.store.writer import NoWriter, ShardWriter, write_batch

_SAMPLE_BYTES = 512 * 1024  # a third of a second of the reference's time
_SAMPLE_DOC_BYTES = 32 * 1024
_SHOWN_TOKENS = 12
Say = Callable[[Reply], None]


class Worker:
    """Encodes units. Made once in each process: the tokenizer is loaded once."""

    def __init__(self, job: Job, storage: Storage, gate: int | None = None) -> None:
        """`gate` is the descriptor of the lock that the workers of this host share."""
        self._job = job
        self._storage = storage
        self._lock = gate
        self._reference = reference_engine(job.files, job.config.tokenizer.special_tokens)
        self._frame = frame_for(job.config.tokenizer, self._reference.info)
        self._shaper = Shaper(job.config, job.inputs, job.files, self._frame, self._reference)
        self._splitter = Splitter(job.config.split, job.inputs, None)
        self._read = reading(job.config)
        self._engine: Engine = self._reference
        self._auditor: Auditor | None = None
        self._profile = cProfile.Profile() if job.config.resources.profile else None
        self._settings = Settings(engine=self._reference.name, batch_bytes=1024**2, threads=1)
        self._gate: Gate | None = None
        self._reading: Input | None = None  # an input of which a slice is read, but not to its end
        self._closing: tuple[ShardWriter | NoWriter, Done] | None = None  # a unit whose last shard is being synced

    def obey(self, order: Order, say: Say) -> None:
        match order:
            case Prepare():
                say(self.prepare(order, say))
            case Preload():
                self.preload()
            case Settings():
                self.configure(order)
            case Task():
                self.run(order, say)
                say(Encoded(unit=order.unit))
            case Settle():
                self.settle(say)
            case Job():
                raise ValueError("a worker is made for one job")

    def prepare(self, order: Prepare, say: Say = lambda _: None) -> Prepared:
        """Proves the engine on its part of a sample of the inputs; after two deaths on the nasty strings alone. Says when it
        begins with something that may hang."""
        job, judge = self._job, SampleJudge(self._job.config)

        def text_of(batch: TextBatch) -> pa.LargeStringArray:
            say(Sampling())
            return self._shaper.render(batch, _SAMPLE_BYTES).batch.text

        sample = list(
            sample_texts(
                job.inputs,
                self._read,
                total_bytes=_SAMPLE_BYTES if order.attempt < 2 else 0,
                max_doc_bytes=_SAMPLE_DOC_BYTES,
                text_of=text_of,
                seen=judge.see,
            )
        )
        judge.end()
        part = slice(order.number, None, order.of)
        self._engine, parity = choose_engine(
            job.files, job.config.tokenizer, self._reference, sample, part, lambda: say(Sampling())
        )
        say(Sampling())
        return Prepared(
            info=self._reference.info,
            frame=self._frame,
            parity=parity,
            first_document=self._first_document(sample[0][:1]) if sample else None,
            footprint=psutil.Process().memory_info().rss + read_ahead_bytes(job.inputs),
            memory_per_byte=self._memory_per_byte() + self._shaper.memory_per_byte,
        )

    def _memory_per_byte(self) -> int:
        """Where several fast engines are tried, those who prove another part may find another one; then it is the
        reference that is used."""
        several = len(fast_for(self._job.files.kind, self._job.config.tokenizer.engine)) > 1
        return max(self._engine.memory_per_byte, self._reference.memory_per_byte if several else 0)

    def preload(self) -> None:
        """Loads what will very likely be chosen, while another worker finds out."""
        tokenizer = self._job.config.tokenizer
        for spec in fast_for(self._job.files.kind, tokenizer.engine)[:1]:
            with suppress(TokenizerError):  # then it will not be chosen either
                self._engine = engine_named(spec.name, self._job.files, tokenizer, self._reference)

    def _first_document(self, text: pa.LargeStringArray) -> FirstDocument | None:
        try:
            ids, decode = self._frame.apply(self._reference.encode(text)).ids, self._reference.decode
        except CannotEncode:
            return None
        if len(ids) <= 2 * _SHOWN_TOKENS:
            return FirstDocument(head=decode(ids), tail="", tokens=len(ids))
        return FirstDocument(head=decode(ids[:_SHOWN_TOKENS]), tail=decode(ids[-_SHOWN_TOKENS:]), tokens=len(ids))

    def configure(self, settings: Settings) -> None:
        config = self._job.config
        self._settings = settings
        self._splitter = Splitter(config.split, self._job.inputs, settings.val_below)
        if self._engine.name != settings.engine:
            self._engine = engine_named(settings.engine, self._job.files, config.tokenizer, self._reference)
        self._storage = open_run(self._storage, settings.run) if settings.run else self._storage
        self._gate = Gate(settings.room, self._lock) if settings.room else None
        self._shaper.spell_with(self._engine)
        audited = self._engine is not self._reference and config.check.audit_rate > 0
        self._auditor = Auditor(self._engine, self._reference, config.check.audit_rate) if audited else None

    def run(self, task: Task, say: Say) -> None:
        """Writes what is left of a unit. Its last shard is synced to disk while the next unit is read: `Done` is said of it
        when that one is read to its end, or when `settle` is called."""
        if self._profile is None:
            self._run(task, say)
        else:
            self._profile.runcall(self._run, task, say)
            write_part(self._profile, self._job.config.resources.profile or "")

    def settle(self, say: Say) -> None:
        """Waits for the unit whose last shard is on its way to the disk, if there is one."""
        if self._closing is None:
            return
        (writer, done), self._closing = self._closing, None
        began = perf_counter()
        writer.finish()
        stages = done.stage_seconds | {"write": done.stage_seconds["write"] + perf_counter() - began}
        say(msgspec.structs.replace(done, stage_seconds=stages))

    def _run(self, task: Task, say: Say) -> None:
        clock, cpu = StageClock(), process_time()
        writer = self._writer(task)
        left, self._reading = task.limit, None
        try:
            clock.start("read")
            for batch in coalesce(self._batches(task), self._settings.batch_bytes):
                clock.start("encode")
                clock.move(batch.parse_seconds, "read", "parse")
                batch = self._splitter.mark(self._usable(batch, task))
                while left != 0:
                    self._wait_for_room(batch)
                    rendered, tokens = self._encode(batch, task, say)
                    rest = self._shaper.rest(batch, rendered)
                    del batch
                    clock.start("audit")
                    audited = self._auditor.check(rendered.batch, tokens) if self._auditor else None
                    clock.start("mask" if rendered.spans is not None else "write")
                    docs, rejects = self._shaper.shape(rendered, tokens, audited)
                    clock.start("write")
                    if left is not None:
                        docs, rejects = first_records(docs, rejects, left)
                        left -= docs.records
                    write_batch(writer, docs, rejects)
                    say(_advanced(rendered.batch, docs, rejects))
                    del rendered, tokens, docs  # before the next batch is read: two large ones need not fit
                    if rest is None:
                        break
                    batch = rest
                    clock.start("encode")
                if self._gate:
                    self._gate.leave()
                if left == 0:
                    break
                clock.start("read")
            clock.start("write")
            writer.close_shard(None)
            clock.stop()
        except BaseException:
            writer.abort()
            raise
        self.settle(say)
        self._closing = (
            writer,
            Done(
                unit=task.unit,
                receipts=writer.receipts,
                stage_seconds=clock.seconds,
                cpu_seconds=process_time() - cpu,
            ),
        )

    def _writer(self, task: Task) -> ShardWriter | NoWriter:
        if task.look_bytes is not None:
            return NoWriter()
        return ShardWriter(
            self._storage,
            unit=task.unit,
            shard_bytes=self._job.config.store.shard_bytes,
            first_shard=task.first_shard,
            earlier=task.earlier,
            splits=self._splitter.names,
            keep=self._job.config.read.keep,
            masks=self._job.config.template.has_mask,
            before_receipt=self._check_reading,
            before_create=None if self._settings.run is None else partial(check_verdicts, self._storage, task),
        )

    def _usable(self, batch: TextBatch, task: Task) -> TextBatch:
        """The batch without what is not to be encoded."""
        for part in ("template", "tokenizer"):
            here = {at: why for at, why in task.quarantined.items() if (part == "template") == ("template" in why)}
            batch = set_aside(batch, here, f"the {part} did not survive this document, alone, twice", self._job.inputs)
        return batch

    def _batches(self, task: Task) -> Iterator[TextBatch]:
        """What is left of the unit. Its slices are in order, so those before `start` are done."""
        read_bytes = 0
        for piece in task.slices if task.limit != 0 else []:
            start = piece.start
            if task.start is not None and piece.input <= task.start[0]:
                if piece.input < task.start[0]:
                    continue
                start = max(start, task.start[1])
            source = self._job.inputs[piece.input]
            check_unchanged(source)
            reader = open_reader(source, piece.input, self._read, self._settings.batch_bytes, self._growing(source))
            self._reading = source
            for batch in reader.read(start, piece.stop):
                yield batch
                read_bytes += batch.input_bytes
                if task.look_bytes is not None and read_bytes >= task.look_bytes:
                    return
            self._check_reading()
            self._reading = None

    def _check_reading(self) -> None:
        """Asked after a slice and before a receipt: what was read of a file that has changed is of no use."""
        if self._reading is not None:
            check_unchanged(self._reading)

    def _growing(self, source: Input) -> Growing | None:
        """Called as a record grows beyond the ordinary, before it is held whole."""
        gate, cost = self._gate, READ_COST + self._engine.memory_per_byte + self._shaper.memory_per_byte
        return (lambda size: gate.wait_for(cost * size, source.path)) if gate else None

    def _wait_for_room(self, batch: TextBatch) -> None:
        if self._gate and len(batch):
            need = (READ_COST + self._shaper.memory_per_byte) * batch.text_bytes + self._engine.memory_for(batch.text)
            self._gate.wait_for(need, self._job.inputs[batch.sources[-1]].path)

    def _encode(self, batch: TextBatch, task: Task, say: Say) -> tuple[Rendered, TokenBatch]:
        """The first documents of a batch, rendered and encoded. Announces which, so that it is known if this process does
        not survive it."""
        if not len(batch):
            return self._shaper.render(batch, 1), self._engine.encode(batch.text)
        first, last = place(batch, 0), place(batch, len(batch) - 1)
        if task.careful is None or task.careful[1] < first or last < task.careful[0]:
            return self._announced(batch, 2 * self._settings.batch_bytes, say, threads=self._settings.threads)
        parts = [self._announced(batch.part(i, i + 1), 1, say) for i in range(len(batch))]
        one = concat_rendered([rendered for rendered, _ in parts])
        one = replace(one, batch=replace(one.batch, rejects=in_order([*batch.rejects, *one.batch.rejects])))
        return one, concat_tokens([tokens for _, tokens in parts])

    def _announced(
        self, batch: TextBatch, max_bytes: int, say: Say, *, threads: int = 1
    ) -> tuple[Rendered, TokenBatch]:
        here = Encoding(first=place(batch, 0), last=place(batch, len(batch) - 1), text_bytes=batch.text_bytes)
        has_code = is_code(self._job.config.template)
        say(msgspec.structs.replace(here, stage="template") if has_code else here)
        rendered = self._shaper.render(batch, max_bytes)
        if has_code:
            say(here)
        if rendered.batch.text is not batch.text:
            self._wait_for_room(rendered.batch)
        return encode_or_reject(self._engine, rendered, self._job.inputs, threads)


def _advanced(batch: TextBatch, docs: DocumentBatch, rejects: list[Reject]) -> Advanced:
    bad = [reject for reject in rejects if reject.reason not in ON_REQUEST]
    return Advanced(
        input_bytes=batch.input_bytes,
        text_bytes=batch.text_bytes,
        docs=docs.records,
        tokens=len(docs.tokens.ids),
        rejects=sum(reject.records for reject in bad),
        examples=bad[:3],
    )
