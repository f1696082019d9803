"""One machine of a cluster, as it works for a driver.

In: numbers of units. Out: what becomes of them. It is a member of a shared run like any other, with its own workers,
budget and gate; only what to do comes from outside, bit by bit. It runs in a thread, so that the driver can talk to it
meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from tokpress.machine import usable_cores
from tokpress.records import Parity, Plan, TokenizerFiles
from tokpress.run import events
from tokpress.run.coordinator import work_for
from tokpress.run.events import WorkerView
from tokpress.run.member import Member
from tokpress.run.messages import Done, Failed, Job, Task
from tokpress.run.scheduler import Scheduler
from tokpress.run.tasks import continued
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.store.receipts import unit_receipts

Told = (  # what a caller hears of a machine as if it were its own
    events.TokenizerLoaded
    | events.Proved
    | events.FirstDocument
    | events.ShardsLost
    | events.FewerWorkers
    | events.NoConditions
    | events.Advanced
    | events.Rejected
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a machine since it was last asked."""

    ready: bool = False  # it has joined the run
    done: list[events.UnitDone] = []
    told: list[Told] = []
    workers: list[WorkerView] = []
    stage_seconds: dict[str, float] = {}
    cpu_seconds: float = 0.0
    failed: Failed | None = None


class AgentMember(Member):
    def __init__(self, storage: Storage, name: str) -> None:
        super().__init__(storage)
        self._name = name
        self.ready = threading.Event()
        self.said = threading.Event()  # something is to be reported
        self.units: deque[int] = deque()
        self.done: deque[tuple[events.UnitDone, Done]] = deque()
        self.ended = False

    @property
    def label(self) -> str:
        return self._name

    @property
    def has_others(self) -> bool:
        return True

    def most_rejects(self, of_the_whole: str) -> str:  # noqa: ARG002
        """The driver sees the whole."""
        return "100%"

    def join(self, plan: Plan, parity: Parity, files: TokenizerFiles, sizes: Sequence[int]) -> tuple[Parity, list[int]]:
        proof, _ = super().join(plan, parity, files, sizes)
        return proof, []

    def num_units(self, now: int) -> int:
        return max(now, usable_cores())

    def more(self, scheduler: Scheduler, plan: Plan) -> bool:
        if not self.ready.is_set():
            self.ready.set()
            self.said.set()
        while self.units:
            unit = self.units.popleft()
            receipts = unit_receipts(self.storage, unit)  # of whoever had it before
            task = continued(Task(unit=unit, slices=plan.units[unit]), receipts)
            if task is None:
                self._say_done(Done(unit=unit, receipts=receipts))
            else:
                scheduler.add([task], {unit: receipts})
        return not self.ended

    def finished(self, done: Done) -> None:
        super().finished(done)
        self._say_done(done)

    def _say_done(self, done: Done) -> None:
        self.done.append((events.UnitDone.of(done.unit, done.receipts), done))
        self.said.set()


class Agent:
    """What the driver talks to. Nothing but bytes of known records goes in and out."""

    def __init__(self, job: bytes, name: str) -> None:
        self._job = msgspec.msgpack.decode(job, type=Job)
        storage = open_storage(self._job.url)
        self._member = AgentMember(storage, name)
        self._failed: Failed | None = None
        self._told: deque[Told] = deque()
        self._workers: list[WorkerView] = []
        self._thread = threading.Thread(target=self._work, args=(storage,), daemon=True)
        self._thread.start()

    def on(self, event: events.Event) -> None:
        if isinstance(event, events.Workers):
            self._workers = event.workers
        elif isinstance(event, Told):
            self._told.append(event)

    def _work(self, storage: Storage) -> None:
        try:
            work_for(self._job, storage, self._member, self)
        except Exception as error:  # noqa: BLE001 - it is for the driver, whatever it is
            self._failed = Failed.of(error)
            self._member.said.set()

    def exchange(self, units: list[int], seconds: float) -> bytes:
        """Takes on units, and tells what happened, waiting so long for something to tell."""
        member = self._member
        member.units.extend(units)
        member.said.wait(seconds)
        member.said.clear()
        done = [member.done.popleft() for _ in range(len(member.done))]
        stages: dict[str, float] = {}
        for stage, spent in (item for _, each in done for item in each.stage_seconds.items()):
            stages[stage] = stages.get(stage, 0.0) + spent
        report = Report(
            ready=member.ready.is_set(),
            done=[event for event, _ in done],
            told=[self._told.popleft() for _ in range(len(self._told))],
            workers=self._workers,
            stage_seconds=stages,
            cpu_seconds=sum(each.cpu_seconds for _, each in done),
            failed=self._failed,
        )
        return msgspec.msgpack.encode(report)

    def end(self) -> None:
        self._member.ended = True
        self._thread.join()
