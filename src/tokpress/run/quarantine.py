"""Which document killed the worker.

In: what a worker last said before it died or fell silent. Out: how to try its unit again. A death between two batches is
bad luck: try again. A death inside a batch: try again, this batch one document at a time. A document that a worker dies on
twice, alone, is the culprit: it is set aside as a reject, and nothing else is lost. Deaths that convict nobody and bring
no shard into being are counted: a disk that fails or a machine without memory must not be tried for ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from tokpress.errors import TokpressError
from tokpress.records import Place
from tokpress.run.job import Encoding, Task

CRASHED = "crashed-tokenizer"
HUNG = "hung-tokenizer"
OUT_OF_MEMORY = "out-of-memory"
_DEATHS_WITHOUT_PROGRESS = 8


@dataclass(slots=True)
class Quarantine:
    """The suspects of one run, unit by unit."""

    _deaths: Counter[Place] = field(default_factory=Counter)  # on a document that was encoded alone
    _in_a_row: Counter[Place] = field(default_factory=Counter)  # of (unit, shard), since anything came of it

    def retry(self, task: Task, last: Encoding | None, cause: str) -> Task:
        """The task to try next. `cause` says how the worker ended."""
        shard = (task.unit, task.first_shard)
        self._in_a_row[shard] += 1
        if self._in_a_row[shard] > _DEATHS_WITHOUT_PROGRESS:
            raise TokpressError(
                f"workers keep dying on unit {task.unit}, and no document of it is the cause ({cause}). Is there enough "
                "memory, is the disk sound? Then run the same command again, with fewer --workers or more --memory."
            )
        if last is None:
            return task
        if last.first != last.last or task.careful is None:
            return replace(task, careful=(last.first, last.last))
        self._deaths[last.first] += 1
        if self._deaths[last.first] < 2:
            return task
        del self._in_a_row[shard]
        reason = cause if cause in (HUNG, OUT_OF_MEMORY) else CRASHED
        return replace(task, quarantined=task.quarantined | {last.first: reason})
