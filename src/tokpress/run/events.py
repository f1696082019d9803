"""What a run tells while it goes: typed events, in the order in which they happen.

In: nothing. Out: the events, a closed union of tagged records that are JSON objects as well (`docs/events.md` has each of
them), and what hears them: a `Reporter`, which the terminal, a file (`event_log`) and a user's own logger are alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Protocol, runtime_checkable

import msgspec

from tokpress.errors import UsageError
from tokpress.records import (
    STDIN,
    Counts,
    Difference,
    Input,
    Manifest,
    Parity,
    Receipt,
    Reject,
    RunFacts,
    TokenizerInfo,
)


def _tag(name: str) -> str:
    """FirstDocument -> first-document."""
    return re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower()


class BaseEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=_tag):
    """What all events have. The tag stands under `event`: the class's name in lower case, with hyphens."""

    time: float = 0.0  # seconds since the run began


class Began(BaseEvent, frozen=True, kw_only=True):
    """The first event of a run. A run that goes on where another was stopped begins anew, with times from 0."""

    started_at: float  # seconds since 1970
    store: str
    version: str  # of tokpress


class InputsFound(BaseEvent, frozen=True, kw_only=True):
    """The inputs were found; none was read yet."""

    files: int  # standard input is none
    bytes: int  # of these files, as stored
    formats: list[str]  # like jsonl.zst, sorted
    stdin: bool

    @classmethod
    def of(cls, inputs: Iterable[Input]) -> InputsFound:
        found = list(inputs)
        sizes = [source.size for source in found if source.path != STDIN]
        return cls(
            files=len(sizes),
            bytes=sum(sizes),
            formats=sorted({".".join(filter(None, (source.format, source.compression))) for source in found}),
            stdin=len(sizes) < len(found),
        )


class TokenizerLoaded(BaseEvent, frozen=True, kw_only=True):
    """How documents will be stored."""

    kind: str
    fingerprint: str
    vocab_size: int
    dtype: str
    bos: str | None  # put before each document
    eos: str | None  # put after each document

    @classmethod
    def of(cls, info: TokenizerInfo, *, dtype: str, bos_id: int | None, eos_id: int | None) -> TokenizerLoaded:
        names = {token: name for name, token in info.special_tokens.items()}
        return cls(
            kind=info.kind,
            fingerprint=info.fingerprint,
            vocab_size=info.vocab_size,
            dtype=dtype,
            bos=None if bos_id is None else names[bos_id],
            eos=None if eos_id is None else names[eos_id],
        )


class Proved(BaseEvent, frozen=True, kw_only=True):
    """An engine was chosen; where a fast one was tried, after a comparison with the reference on the user's own text."""

    outcome: str  # equal, different, unsupported, or not-needed
    engine: str  # that the run uses
    reference: str
    docs: int = 0  # compared
    bytes: int = 0
    difference: Difference | None = None
    detail: str = ""
    refusals: dict[str, str] = {}  # fast engines that are not used, and why
    reference_version: str | msgspec.UnsetType = msgspec.UNSET  # of its library, if ids depend on it

    @classmethod
    def of(cls, parity: Parity) -> Proved:
        known = msgspec.structs.asdict(parity)
        del known["refused"]
        return cls(**known, refusals=parity.refusals)


class FirstDocument(BaseEvent, frozen=True, kw_only=True):
    """The ends of the first document as they will be stored, so that a lost BOS or a wrong EOS is seen at once."""

    head: str
    tail: str  # empty if `head` is all of it
    tokens: int


class AlreadyFinished(BaseEvent, frozen=True, kw_only=True):
    """The store is there already, made of the same inputs with the same options: nothing is done."""

    store: str


class Resuming(BaseEvent, frozen=True, kw_only=True):
    """An earlier run was stopped; this one does what is left."""

    units: int  # in all
    units_left: int
    docs: int  # that are stored already


class ShardsLost(BaseEvent, frozen=True, kw_only=True):
    """Files of shards that an earlier run finished are gone or changed: they are written again."""

    shards: list[str]


class Started(BaseEvent, frozen=True, kw_only=True):
    """Encoding begins."""

    bytes: int  # of the inputs, that are left to read
    units: int  # that are left to do
    workers: int
    threads: int  # that each worker encodes on
    memory_bytes: int | None = None  # that the whole run may hold; None: each machine of several has its own


class FewerWorkers(BaseEvent, frozen=True, kw_only=True):
    """A record does not fit into memory beside so many workers: the run goes on with fewer."""

    workers: int
    why: str


class NoConditions(BaseEvent, frozen=True, kw_only=True):
    """The store ignores the condition of a create-only put: one machine may write there, two must not."""

    store: str


class Advanced(BaseEvent, frozen=True, kw_only=True):
    """A worker has written a batch. The sums of all are the totals so far. Numbers are below zero where a worker died: what
    it had done of an unfinished shard will be done again."""

    worker: int
    input_bytes: int = 0
    text_bytes: int = 0
    docs: int = 0
    tokens: int = 0
    rejects: int = 0

    def __add__(self, other: Advanced) -> Advanced:
        """Both, at the time of the other."""
        return Advanced(
            time=other.time,
            worker=self.worker,
            input_bytes=self.input_bytes + other.input_bytes,
            text_bytes=self.text_bytes + other.text_bytes,
            docs=self.docs + other.docs,
            tokens=self.tokens + other.tokens,
            rejects=self.rejects + other.rejects,
        )


class Rejected(BaseEvent, frozen=True, kw_only=True):
    """A worker has met bad records. A few of them are shown; all are counted by `advanced` and listed in the store."""

    worker: int
    examples: list[Reject]


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment."""

    number: int
    unit: int | None  # None: it is idle, or closes a shard
    cpu_percent: float
    memory_bytes: int
    node: str | msgspec.UnsetType = msgspec.UNSET  # its machine, where there are several


class Workers(BaseEvent, frozen=True, kw_only=True):
    """What the workers are busy with; about twice a second."""

    workers: list[WorkerView]


class UnitDone(BaseEvent, frozen=True, kw_only=True):
    """All shards of a unit exist."""

    unit: int
    docs: int
    tokens: int
    shards: list[str]  # their names

    @classmethod
    def of(cls, unit: int, receipts: Sequence[Receipt]) -> UnitDone:
        docs, tokens = (sum(getattr(receipt, name) for receipt in receipts) for name in ("docs", "tokens"))
        return cls(unit=unit, docs=docs, tokens=tokens, shards=[receipt.name for receipt in receipts])


class Stopped(BaseEvent, frozen=True, kw_only=True):
    """Encoding is over, for whatever reason; `finished` or `failed` follows."""


class Finished(BaseEvent, frozen=True, kw_only=True):
    """The store is complete."""

    store: str
    fingerprint: str
    docs: int
    tokens: int
    totals: Counts
    rejects: dict[str, int]  # by reason
    run: RunFacts

    @classmethod
    def of(cls, store: str, manifest: Manifest) -> Finished:
        return cls(
            store=store,
            fingerprint=manifest.fingerprint,
            docs=sum(split.docs for split in manifest.splits.values()),
            tokens=sum(split.tokens for split in manifest.splits.values()),
            totals=manifest.totals,
            rejects=manifest.rejects,
            run=manifest.run,
        )


class Failed(BaseEvent, frozen=True, kw_only=True):
    """The run ends without a store. What is finished is kept: the same command goes on."""

    error: str  # the exception's class; KeyboardInterrupt if it was interrupted
    message: str


Event = (
    Began
    | InputsFound
    | TokenizerLoaded
    | Proved
    | FirstDocument
    | AlreadyFinished
    | Resuming
    | ShardsLost
    | Started
    | FewerWorkers
    | NoConditions
    | Advanced
    | Rejected
    | Workers
    | UnitDone
    | Stopped
    | Finished
    | Failed
)
encode = msgspec.json.Encoder().encode  # one line, without its end
decode = msgspec.json.Decoder(Event).decode


@runtime_checkable
class Reporter(Protocol):
    """Hears what happens, in the thread of the run: a slow one slows it down, and what one raises ends it."""

    def on(self, event: Event) -> None: ...


Listener = Reporter | Callable[[Event], Any]


class Quiet:
    """Hears, and says nothing."""

    def on(self, event: Event) -> None: ...


class _Calling:
    def __init__(self, function: Callable[[Event], Any]) -> None:
        self._function = function

    def on(self, event: Event) -> None:
        self._function(event)


class _Joined:
    def __init__(self, reporters: list[Reporter]) -> None:
        self._reporters = reporters

    def on(self, event: Event) -> None:
        for reporter in self._reporters:
            reporter.on(event)


def join(*listeners: Listener) -> Reporter:
    """One reporter that tells all of them, in this order. A plain function hears events as its one argument."""
    reporters = [_reporter(listener) for listener in listeners]
    return reporters[0] if len(reporters) == 1 else _Joined(reporters)


def _reporter(listener: Listener) -> Reporter:
    if isinstance(listener, Reporter):
        return listener
    if callable(listener):
        return _Calling(listener)
    raise UsageError(
        f"reporter={listener!r} hears nothing. Give a function of an event, or an object with `on(event)`."
    )


class Timed:
    """Tells another reporter, with the time since this one was made."""

    def __init__(self, reporter: Reporter, clock: Callable[[], float] = monotonic) -> None:
        self._reporter = reporter
        self._clock = clock
        self._began = clock()

    def on(self, event: Event) -> None:
        self._reporter.on(msgspec.structs.replace(event, time=round(self._clock() - self._began, 6)))
