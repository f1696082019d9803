"""Which document killed the worker.

In: what a worker last said before it died or fell silent. Out: how to try its unit again. A death between two batches is
bad luck: try again. A death inside a batch: try again, this batch one document at a time. A document that a worker dies on
twice, alone, is the culprit: it is set aside as a reject, and nothing else is lost. The verdict is stored with the run,
before anything is written that depends on it, so that a coordinator that was killed need not find the culprit again.

Deaths that convict nobody and bring no shard into being are counted: a disk that fails or a machine without memory must not
be tried for ever.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec

from tokpress.errors import TokpressError
from tokpress.records import QUARANTINE, Place, Verdict
from tokpress.run.clusters.base import CRASHED
from tokpress.run.messages import Encoding, Task
from tokpress.storage.base import Storage
from tokpress.store.manifest import encode, read_record

HUNG = "hung-tokenizer"
OUT_OF_MEMORY = "out-of-memory"
OF_A_TEMPLATE = {
    HUNG: "hung-template",
    OUT_OF_MEMORY: "template-out-of-memory",
    CRASHED: "crashed-template",
}
_DEATHS_WITHOUT_PROGRESS = 8


class Quarantine:
    """The suspects of one run, unit by unit, and those that were convicted, in this run or before."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._deaths: Counter[Place] = Counter()  # on a document that was encoded alone
        self._in_a_row: Counter[tuple[int, int]] = Counter()  # of (unit, shard), since anything came of it
        self._verdicts = [read_record(storage, key, Verdict) for key in storage.list(QUARANTINE)]

    def known(self, task: Task) -> Task:
        """The task without the documents of its unit that were convicted before."""
        convicted = {
            (verdict.input, verdict.position): verdict.reason for verdict in self._verdicts if verdict.unit == task.unit
        }
        return msgspec.structs.replace(task, quarantined=task.quarantined | convicted) if convicted else task

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
            return msgspec.structs.replace(task, careful=(last.first, last.last))
        self._deaths[last.first] += 1
        if self._deaths[last.first] < 2:
            return task
        del self._in_a_row[shard]
        reason = cause if cause in (HUNG, OUT_OF_MEMORY) else CRASHED
        if last.stage == "template":
            reason = OF_A_TEMPLATE[reason]
        self._convict(Verdict(unit=task.unit, input=last.first[0], position=last.first[1], reason=reason))
        return msgspec.structs.replace(task, quarantined=task.quarantined | {last.first: reason})

    def _convict(self, verdict: Verdict) -> None:
        self._storage.prepare(QUARANTINE)
        self._storage.barrier("")
        key = f"{QUARANTINE}/{verdict.unit:05d}-{verdict.input}-{verdict.position}.json"
        with suppress(FileExistsError):  # of another who came to it first
            self._storage.put(key, encode(verdict), if_absent=True)
