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

import msgspec

from tokpress.errors import TokpressError
from tokpress.records import QUARANTINE, Place, Verdict
from tokpress.run.clusters.base import CRASHED
from tokpress.run.messages import Encoding, Task
from tokpress.storage.base import Storage, WriteAgain
from tokpress.storage.once import create_or_read
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
        self._verdicts = stored_verdicts(storage)

    def known(self, task: Task) -> Task:
        """The task without the documents of its unit that were convicted before."""
        convicted = self._verdicts.get(task.unit)
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
        stored = self._convict(Verdict(unit=task.unit, input=last.first[0], position=last.first[1], reason=reason))
        return msgspec.structs.replace(task, quarantined=task.quarantined | {last.first: stored.reason})

    def write_to(self, storage: Storage) -> None:
        """From now on: verdicts of a run of several machines count as long as it goes on."""
        self._storage = storage
        self.look_again()

    def look_again(self) -> None:
        """Others may have convicted documents since."""
        self._verdicts = stored_verdicts(self._storage)

    def _convict(self, verdict: Verdict) -> Verdict:
        """The verdict that counts: another machine may have come to one first, for another reason."""
        self._storage.prepare(QUARANTINE)
        self._storage.barrier("")
        key = f"{QUARANTINE}/{verdict.unit:05d}-{verdict.input}-{verdict.position}.json"
        return msgspec.json.decode(create_or_read(self._storage, key, encode(verdict)), type=Verdict)


def stored_verdicts(storage: Storage) -> dict[int, dict[Place, str]]:
    """Of each unit the documents that were convicted, and why."""
    found: dict[int, dict[Place, str]] = {}
    for key in storage.list(QUARANTINE):
        verdict = read_record(storage, key, Verdict)
        found.setdefault(verdict.unit, {})[verdict.input, verdict.position] = verdict.reason
    return found


def check_verdicts(storage: Storage, task: Task) -> None:
    """Before a receipt: raises WriteAgain if a document of the unit was convicted that this attempt does not know of."""
    keys = [key for key in storage.list(QUARANTINE) if key.startswith(f"{QUARANTINE}/{task.unit:05d}-")]
    for key in keys:
        verdict = read_record(storage, key, Verdict)
        if (verdict.input, verdict.position) not in task.quarantined:
            raise WriteAgain(0, "a document of this unit was set aside by another machine", storage.location(key))
