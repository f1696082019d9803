"""One worker as the scheduler sees it: what it has, and what it said of it.

In: nothing. Out: the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tokpress.run.messages import Advanced, Encoding, Task


@dataclass(slots=True)
class Assigned:
    """One worker as the scheduler sees it."""

    number: int
    heard: float  # when it last said something
    task: Task | None = None
    closing: list[Task] = field(default_factory=list)  # read to their end, but their shards may not exist yet
    settling: bool = False  # it was told to say when they do
    heard_of: dict[int, Advanced] = field(default_factory=dict)  # what it said of each of these units, in all
    sampling: bool = False  # it has loaded the tokenizer, and is at work on the sample
    encoding: Encoding | None = None  # what it is busy with, if it dies now
    ended: str | None = None  # why, once it has

    @property
    def is_busy(self) -> bool:
        return self.task is not None or bool(self.closing)

    @property
    def tasks(self) -> list[Task]:
        return [*self.closing, *([self.task] if self.task else [])]
