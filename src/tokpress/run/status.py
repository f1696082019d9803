"""How far a store is that is being written: what is done, by whom, what is left.

In: a storage. Out: a `Status`. Nothing is changed, and nobody is asked: it is read from receipts and from what processes
wrote of themselves. One that was killed could not say so, and still counts as running.
"""

from __future__ import annotations

import msgspec

from tokpress.errors import StoreError
from tokpress.records import PLAN, Counts, Plan
from tokpress.run.shared import Attempt, attempts, find_run
from tokpress.run.tasks import remaining_tasks
from tokpress.storage import open_run
from tokpress.storage.base import Storage
from tokpress.store.manifest import read_record
from tokpress.store.receipts import read_receipts
from tokpress.store.unfinished import is_finished


class Status(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    sealed: bool
    units: int
    units_done: int
    units_begun: int  # among those that are left
    left: list[int]  # units
    counts: Counts  # of what has receipts
    tokens: int
    run: str | None = None  # of several machines
    attempts: list[Attempt] = []


def read_status(storage: Storage) -> Status:
    if not storage.exists(PLAN):
        raise StoreError(f"nothing is built at {storage.url}: there is no {PLAN}. Begin: tokpress build --help")
    plan = read_record(storage, PLAN, Plan)
    run = find_run(storage)
    receipts = read_receipts(open_run(storage, run.id) if run else storage)
    left = [task.unit for task in remaining_tasks(plan, receipts)]
    known = [receipt for unit in receipts.values() for receipt in unit]
    return Status(
        store=storage.url,
        sealed=is_finished(storage),
        units=len(plan.units),
        units_done=len(plan.units) - len(left),
        units_begun=len(receipts.keys() & set(left)),
        left=left,
        counts=sum((receipt.counts for receipt in known), Counts()),
        tokens=sum(receipt.tokens for receipt in known),
        run=run.id if run else None,
        attempts=attempts(storage, run) if run else [],
    )


def check_all_done(storage: Storage) -> None:
    """Raises StoreError if a unit is left."""
    if is_finished(storage):
        return
    status = read_status(storage)
    if status.left:
        shown = ", ".join(map(str, status.left[:10])) + (" ..." if len(status.left) > 10 else "")
        raise StoreError(
            f"{len(status.left):,} of {status.units:,} units of {storage.url} are not done: {shown}. Run their shares "
            f"again, or the same command without --seal, which does what is left. See: tokpress status {storage.url}"
        )
