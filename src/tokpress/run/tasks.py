"""What is left to do, and what was done for nothing.

In: the plan and the receipts that exist. Out: a task for each unit that is not finished, from its last receipt on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tokpress.records import Plan, Receipt
from tokpress.run.messages import Advanced, Task
from tokpress.store.receipts import Receipts


def remaining_tasks(plan: Plan, receipts: Receipts, units: Iterable[int] | None = None) -> list[Task]:
    """A task for every unit, or of these, that is not finished, from its last receipt on."""
    chosen = range(len(plan.units)) if units is None else units
    tasks = (continued(Task(unit=unit, slices=plan.units[unit]), receipts.get(unit, [])) for unit in chosen)
    return [task for task in tasks if task is not None]


def continued(task: Task, receipts: list[Receipt]) -> Task | None:
    """What is left of a task after these receipts of its unit; None if nothing is."""
    if not receipts:
        return task
    last = receipts[-1]
    if last.next_input is None or last.next_position is None:
        return None
    written = sum(receipt.counts.written for receipt in receipts if receipt.number >= task.first_shard)
    return msgspec.structs.replace(
        task,
        first_shard=last.number + 1,
        earlier=receipts,
        start=(last.next_input, last.next_position),
        limit=None if task.limit is None else task.limit - written,
    )


def lost(heard: Advanced, task: Task, receipts: Sequence[Receipt]) -> Advanced:
    """What a worker said it had done but has no receipt for, as a negative number."""
    kept = [receipt for receipt in receipts if receipt.number >= task.first_shard]
    docs = sum(receipt.counts.written for receipt in kept) - heard.docs
    share = docs / max(heard.docs, 1)
    return Advanced(
        input_bytes=int(share * heard.input_bytes),
        text_bytes=int(share * heard.text_bytes),
        docs=docs,
        tokens=sum(receipt.tokens for receipt in kept) - heard.tokens,
        rejects=sum(receipt.bad_records for receipt in kept) - heard.rejects,
    )


def one_by_one(tasks: Sequence[Task]) -> list[list[Task]]:
    """One task after the other: which documents are the first N is known only when the units before are done."""
    return [[task] for task in sorted(tasks, key=lambda task: task.unit)]


def limited(task: Task, limit: int | None, receipts: Receipts) -> Task:
    if limit is None:
        return task
    before = sum(receipt.counts.written for unit in range(task.unit + 1) for receipt in receipts.get(unit, []))
    return msgspec.structs.replace(task, limit=max(limit - before, 0))
