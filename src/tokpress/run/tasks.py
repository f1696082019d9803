"""What is left to do: a task for each unit that is not finished.

In: the plan and the receipts that exist. Out: tasks, each from its unit's last receipt on.
"""

from __future__ import annotations

from dataclasses import replace

from tokpress.records import Plan, Receipt
from tokpress.run.job import Task
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
    return replace(
        task,
        first_shard=last.number + 1,
        start=(last.next_input, last.next_position),
        limit=None if task.limit is None else task.limit - written,
    )
