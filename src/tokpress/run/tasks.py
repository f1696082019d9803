"""What is left to do, and what was done for nothing.

In: the plan and the receipts that exist. Out: a task for each unit that is not finished, from its last receipt on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpress.records import Plan, Receipt
from tokpress.run.messages import Advanced, Task
from tokpress.store.unfinished import Receipts


def remaining_tasks(plan: Plan, receipts: Receipts) -> list[Task]:
    """A task for every unit that is not finished, from its last receipt on."""
    tasks = (
        continued(Task(unit=unit, slices=slices), receipts.get(unit, [])) for unit, slices in enumerate(plan.units)
    )
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
