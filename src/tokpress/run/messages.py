"""What travels between the scheduler and its workers: small records, no documents.

In: nothing. Out: `Job` (what a worker is made from), orders to a worker, and what it says. Both are closed unions of tagged
records in MessagePack, so that nothing that arrives can be anything else, and nothing in it can run.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tokpress import errors
from tokpress.config import BuildConfig
from tokpress.documents.frame import Frame
from tokpress.records import Input, Parity, Place, Receipt, Reject, Slice, TokenizerFiles, TokenizerInfo
from tokpress.run.gate import Room

Stage = Literal["template", "tokenizer"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all of them: the tag is the class's name."""


class Job(Message, frozen=True, kw_only=True):
    """All that a worker needs to know, except which unit: the first thing it is told."""

    url: str  # of the store's storage
    config: BuildConfig
    inputs: list[Input]
    files: TokenizerFiles
    cpus: set[int] | None = None  # to run on; None: any


class Prepare(Message, frozen=True, kw_only=True):
    """The order to prove the engine on a part of the sample: documents number, number + of, ... With each attempt that kills
    a worker the sample gets smaller: a document in it may be what kills."""

    number: int = 0
    of: int = 1
    attempt: int = 0


class Preload(Message, frozen=True):
    """The order to load what the one that prepares will very likely choose."""


class Settings(Message, frozen=True, kw_only=True):
    """How the workers are to work, once that is known. But for `val_below`, which is the plan's, none changes the output."""

    engine: str
    batch_bytes: int
    threads: int
    val_below: int | None = None  # records whose hash is below it are `val`
    room: Room | None = None  # None: no bounds, for a look at a sample
    run: str | None = None  # of several machines that write this store; None: there is only this one


class Task(Message, frozen=True, kw_only=True):
    """One unit, or what is left of it."""

    unit: int
    slices: list[Slice]
    first_shard: int = 0  # number of the shard to write next
    earlier: list[Receipt] = []  # of the shards before it
    start: Place | None = None  # where to go on; None: at the start
    limit: int | None = None  # documents to write at most, over all of the unit
    careful: tuple[Place, Place] | None = None  # documents from..to are encoded one by one: one of them kills workers
    quarantined: dict[Place, str] = {}  # documents that are not encoded, and why
    look_bytes: int | None = None  # only a look: about so much is read, and nothing is written


class Settle(Message, frozen=True):
    """The order to say of every unit that its shards exist, as soon as they do."""


class FirstDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of the first document as they will be stored, so that a lost BOS or a wrong EOS is seen at once."""

    head: str
    tail: str  # empty if `head` is all of it
    tokens: int


class Prepared(Message, frozen=True, kw_only=True):
    """What a worker found out before the run."""

    info: TokenizerInfo
    frame: Frame
    parity: Parity
    first_document: FirstDocument | None
    footprint: int  # bytes a worker holds before it reads anything
    memory_per_byte: int  # of text, that the chosen engine takes

    def __add__(self, other: Prepared) -> Prepared:
        """With what another worker found that proved another part."""
        return msgspec.structs.replace(
            self
            if self.memory_per_byte >= other.memory_per_byte
            else other,  # one of them may have to use the reference
            parity=self.parity + other.parity,
            first_document=self.first_document,
            footprint=max(self.footprint, other.footprint),
        )


class Sampling(Message, frozen=True):
    """About to render or encode a little of the sample."""


class Encoding(Message, frozen=True, kw_only=True):
    """About to encode the documents from..to: if nothing else is heard, one of them is the culprit."""

    first: Place
    last: Place
    text_bytes: int = 0
    stage: Stage = "tokenizer"  # what is at work on them


class Advanced(Message, frozen=True, kw_only=True):
    """A batch was written."""

    input_bytes: int = 0
    text_bytes: int = 0
    docs: int = 0
    tokens: int = 0
    rejects: int = 0
    examples: list[Reject] = []  # a few of them, to show

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(
            input_bytes=self.input_bytes + other.input_bytes,
            text_bytes=self.text_bytes + other.text_bytes,
            docs=self.docs + other.docs,
            tokens=self.tokens + other.tokens,
            rejects=self.rejects + other.rejects,
        )


class Encoded(Message, frozen=True, kw_only=True):
    """A unit is read to its end, and its last shard is on its way to the disk. The worker is free for another."""

    unit: int


class Done(Message, frozen=True, kw_only=True):
    """A unit is finished: its shards exist."""

    unit: int
    receipts: list[Receipt] = []  # of what this attempt wrote; from the scheduler, of the whole unit
    stage_seconds: dict[str, float] = {}
    cpu_seconds: float = 0.0


class Failed(Message, frozen=True, kw_only=True):
    """The worker met an error that is no bad record; it is for the user."""

    kind: str  # a class of `errors`, or "OSError"
    message: str
    errno: int | None = None
    file: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Failed:
        if isinstance(error, OSError):
            file = None if error.filename is None else str(error.filename)
            return cls(kind="OSError", message=error.strerror or str(error), errno=error.errno, file=file)
        known = next((kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__)), errors.TokpressError)
        return cls(kind=known.__name__, message=str(error))

    @property
    def error(self) -> Exception:
        if self.kind == "OSError":
            return OSError(self.message) if self.errno is None else OSError(self.errno, self.message, self.file)
        made: type[Exception] = getattr(errors, self.kind, errors.TokpressError)
        return made(self.message)


Order = Job | Prepare | Preload | Settings | Task | Settle  # what a worker is told
Reply = Prepared | Sampling | Encoding | Advanced | Encoded | Done | Failed  # what it says
encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
