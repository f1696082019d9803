"""What travels between the coordinator and its workers: small records, no documents.

In: nothing. Out: `Job` (what a worker is made from), `Task` (one unit, from where on), and the messages a worker sends.
All of them can be pickled, and none holds more than counters, positions and a tokenizer's own files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from tokpress.batches import Reject
from tokpress.config import BuildConfig
from tokpress.engines.base import TokenizerFiles
from tokpress.engines.framing import Frame
from tokpress.records import Parity, TokenizerInfo
from tokpress.run.gate import Room
from tokpress.sources.base import Input
from tokpress.store.manifest import Slice

PROFILE_PART = ".part-"  # of --profile: each process writes its own, the coordinator joins them
Place = tuple[int, int]  # (input, position): where a record stands; places of one unit are in reading order


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs to know, except which unit."""

    directory: Path
    config: BuildConfig
    inputs: list[Input]
    files: TokenizerFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One unit, or what is left of it."""

    unit: int
    slices: list[Slice]
    first_shard: int = 0  # number of the shard to write next
    start: Place | None = None  # where to go on; None: at the start
    limit: int | None = None  # documents to write at most, over all of the unit
    careful: tuple[Place, Place] | None = None  # documents from..to are encoded one by one: one of them kills workers
    quarantined: dict[Place, str] = field(default_factory=dict)  # documents that are not encoded, and why


@dataclass(frozen=True, slots=True)
class Start:
    """The first thing a worker is told."""

    job: Job
    cpus: set[int] | None  # to run on; None: any


@dataclass(frozen=True, slots=True)
class Prepare:
    """The order to prove the engine on a part of the sample. With each attempt that kills a worker the sample gets smaller:
    a document in it may be what kills."""

    part: slice
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Preload:
    """The order to load what the one that prepares will very likely choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDocument:
    """The ends of the first document as they will be stored, so that a lost BOS or a wrong EOS is seen at once."""

    head: str
    tail: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a worker found out before the run."""

    info: TokenizerInfo
    frame: Frame
    parity: Parity
    first_document: FirstDocument | None
    footprint: int  # bytes a worker holds before it reads anything
    memory_per_byte: int  # of text, that the chosen engine takes

    def __add__(self, other: Prepared) -> Prepared:
        """With what another worker found that proved another part."""
        return replace(
            self
            if self.memory_per_byte >= other.memory_per_byte
            else other,  # one of them may have to use the reference
            parity=self.parity + other.parity,
            first_document=self.first_document,
            footprint=max(self.footprint, other.footprint),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the workers are to work, once that is known. But for `val_below`, which is the plan's, none changes the output."""

    engine: str
    batch_bytes: int
    threads: int
    val_below: int | None = None  # records whose hash is below it are `val`
    room: Room | None = None  # None: no bounds, for a look at a sample


@dataclass(frozen=True, slots=True)
class Settle:
    """The order to say of every unit that its shards exist, as soon as they do."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """About to encode the documents from..to: if nothing else is heard, one of them is the culprit."""

    first: Place
    last: Place
    text_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """A batch was written."""

    input_bytes: int = 0
    text_bytes: int = 0
    docs: int = 0
    tokens: int = 0
    rejects: int = 0
    examples: list[Reject] = field(default_factory=list)  # a few of them, to show

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(
            input_bytes=self.input_bytes + other.input_bytes,
            text_bytes=self.text_bytes + other.text_bytes,
            docs=self.docs + other.docs,
            tokens=self.tokens + other.tokens,
            rejects=self.rejects + other.rejects,
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """A unit is read to its end, and its last shard is on its way to the disk. The worker is free for another."""

    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit is finished: its shards exist."""

    unit: int
    stage_seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker at one moment, for people to watch."""

    number: int
    unit: int | None
    cpu_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker met an error that is no bad record; it is for the user."""

    error: Exception


Message = Prepared | Encoding | Advanced | Encoded | Done | Failed  # what a worker says
