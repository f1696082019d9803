"""A build on a Ray cluster: the one module that knows Ray.

In: a job. Out: a store. One actor a machine (`Agent`) runs that machine's own workers; machines that join later get one,
too, and what a lost one had goes to others (`NodeScheduler`). Ray carries numbers of units and reports, never documents.
Nothing of the run is in the driver alone: killed, the same command goes on from the receipts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from heapq import heappop, heappush
from time import monotonic, perf_counter, sleep, time
from typing import Any

import msgspec

import tokpress
from tokpress.config import BuildConfig
from tokpress.documents.frame import frame_for
from tokpress.errors import UsageError
from tokpress.records import PLAN, STDIN, Plan
from tokpress.run import events
from tokpress.run.agent import Agent, Report
from tokpress.run.coordinator import make_job
from tokpress.run.events import Listener, Quiet, Reporter, Timed, join
from tokpress.run.member import Member
from tokpress.run.messages import Advanced, Job, encode
from tokpress.run.nodes import Finished, Joined, Lost, NodeEvent, NodeScheduler
from tokpress.run.plan import unit_bytes
from tokpress.run.shared import find_run
from tokpress.run.tally import Tally
from tokpress.run.tasks import remaining_tasks
from tokpress.run.writing import Written, finish_store
from tokpress.storage import open_run, open_storage
from tokpress.storage.base import Storage
from tokpress.store import unfinished
from tokpress.store.manifest import read_manifest, read_record
from tokpress.store.reader import Store
from tokpress.store.receipts import read_receipts

_LOOK_SECONDS = 2.0  # between two looks at which machines there are
_TALK_SECONDS = 1.0  # that an agent waits for something to tell
_TALKS_A_SECOND = 250  # with all of them: a word takes a fifth of a millisecond of the driver's time
_POLL_SECONDS = 0.1
_VIEW_SECONDS = 0.5
_ONCE = (events.TokenizerLoaded, events.Proved, events.FirstDocument, events.NoConditions)
_WORKERS_A_NODE = 1000  # numbers of workers in events: node * 1000 + worker


def build_on_ray(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    config: BuildConfig,
    *,
    address: str | None = None,
    overwrite: bool = False,
    reporter: Listener | None = None,
) -> Store:
    """`address`: of the cluster, as `ray.init` takes it; None: the one that this program uses already, or a new one."""
    ray = _import_ray()
    storage = open_storage(out)
    told = Timed(join(reporter or Quiet()))
    told.on(events.Began(started_at=time(), store=storage.url, version=tokpress.__version__))
    try:
        return _run(ray, inputs, storage, config, told, address=address, overwrite=overwrite)
    except BaseException as error:  # also an interruption: whoever listens is to know that nothing follows
        told.on(events.Failed(error=type(error).__name__, message=str(error)))
        raise


def _run(
    ray: Any,
    inputs: Sequence[str | os.PathLike[str]],
    storage: Storage,
    config: BuildConfig,
    told: Reporter,
    *,
    address: str | None,
    overwrite: bool,
) -> Store:
    job = make_job(inputs, storage, config)
    if config.read.limit is not None or any(source.path == STDIN for source in job.inputs):
        raise UsageError("--limit and standard input need one machine. Leave --executor ray out.")
    told.on(events.InputsFound.of(job.inputs))
    if overwrite:
        with storage.lock():
            unfinished.clear(storage)
            storage.delete(PLAN)
            storage.barrier("")
    elif unfinished.is_finished(storage):
        told.on(events.AlreadyFinished(store=storage.url))
        return Store(storage, read_manifest(storage))
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    nodes = RayNodes(ray, job, told)
    try:
        return _build(job, storage, nodes, told)
    finally:
        nodes.end()
        if started_here:
            ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError("--executor ray needs Ray. Install it everywhere: pip install 'tokpress[ray]'") from None
    return ray


def _build(job: Job, storage: Storage, nodes: RayNodes, reporter: Reporter) -> Store:
    tally = nodes.tally = Tally("100%", reporter)
    early = nodes.wait_for_one()
    plan = read_record(storage, PLAN, Plan)
    run = find_run(storage)
    if run is None:  # another driver was first
        return Store(storage, read_manifest(storage))
    sizes = unit_bytes(plan)
    receipts = read_receipts(open_run(storage, run.id))
    left = [task.unit for task in remaining_tasks(plan, receipts)]
    if receipts:
        docs = sum(receipt.counts.written for unit in receipts.values() for receipt in unit)
        reporter.on(events.Resuming(units=len(plan.units), units_left=len(left), docs=docs))
    reporter.on(
        events.Started(bytes=sum(sizes[unit] for unit in left), units=len(left), workers=nodes.num_workers, threads=1)
    )
    started = perf_counter()
    scheduler = NodeScheduler(nodes, sizes)
    nodes.waiting = early
    try:
        for unit in scheduler.run(left):
            reporter.on(nodes.done.pop(unit))
    finally:
        reporter.on(events.Stopped())
    receipts = read_receipts(open_run(storage, run.id))
    whole = Tally(job.config.check.most_rejects, Quiet())
    whole.resumed(receipt for unit in receipts.values() for receipt in unit)
    whole.check_rejects()
    facts = tally.facts(workers=nodes.num_workers, threads=1, peak_bytes=nodes.peak_bytes, started=started)
    facts = msgspec.structs.replace(facts, tokenizer=job.config.tokenizer.spec)
    member = Member(storage)
    member.attach(run)
    frame = frame_for(job.config.tokenizer, plan.tokenizer)
    return finish_store(
        job, storage, Written(plan, frame, run.parity, receipts, facts, tally.examples), reporter, member
    )


class RayNodes:
    """The machines of a cluster, each with an agent."""

    def __init__(self, ray: Any, job: Job, reporter: Reporter) -> None:
        self._ray = ray
        self._job = encode(job)
        self._wanted = job.config.resources.workers
        self._reporter = reporter
        self._agents: dict[str, Any] = {}
        self._workers: dict[str, int] = {}
        self._numbers: dict[str, int] = {}  # of all that there ever were
        self._labels: dict[str, str] = {}
        self._ready: set[str] = set()
        self._calls: dict[Any, str] = {}  # exchanges under way
        self._due: list[tuple[float, str]] = []  # when to talk to which machine next
        self._units: dict[str, list[int]] = {}  # to be handed over with the next
        self._views: dict[str, list[events.WorkerView]] = {}
        self._told: set[type] = set()  # of events that all machines tell alike
        self._looked = self._viewed = -_LOOK_SECONDS
        self.tally: Tally | None = None
        self.done: dict[int, events.UnitDone] = {}  # that the scheduler was told of
        self.peak_bytes = 0
        self.waiting: list[NodeEvent] = []

    @property
    def num_workers(self) -> int:
        return max(sum(self._workers[node] for node in self._ready), 1)

    @property
    def pause(self) -> float:
        return len(self._agents) / _TALKS_A_SECOND if len(self._agents) > _TALKS_A_SECOND else 0.0

    def wait_for_one(self) -> list[NodeEvent]:
        """What happened until the first machine has joined the run; with it there is a plan."""
        found: list[NodeEvent] = []
        while not self._ready:
            found += self.poll(_TALK_SECONDS)
        return found

    def assign(self, node: str, units: list[int]) -> None:
        if node in self._agents:
            self._units.setdefault(node, []).extend(units)

    def poll(self, seconds: float) -> list[NodeEvent]:
        found, self.waiting = self.waiting, []
        self._look()
        while self._due and self._due[0][0] <= monotonic():
            node = heappop(self._due)[1]
            self._calls[self._agents[node].exchange.remote(self._units.pop(node, []), _TALK_SECONDS)] = node
        if found:
            return found
        if not self._calls:
            sleep(min(seconds, _POLL_SECONDS))
            return found
        ready, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=min(seconds, _POLL_SECONDS))
        for call in ready:
            found += self._answer(call, self._calls.pop(call))
        return found

    def _look(self) -> None:
        """For machines that have joined."""
        if monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = monotonic()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for node in self._ray.nodes():
            name, cpus = node["NodeID"], int(node["Resources"].get("CPU", 0))
            if not node["Alive"] or name in self._labels or not cpus:
                continue
            self._workers[name] = self._wanted or cpus
            self._numbers[name] = len(self._numbers)
            self._labels[name] = f"{node['NodeManagerHostname']} {len(self._labels)}"
            label = f"tokpress {self._labels[name]}"
            remote = self._ray.remote(max_restarts=0, max_concurrency=2)(Agent)
            self._agents[name] = remote.options(
                name=f"{label} of {os.getpid()}",
                num_cpus=min(self._workers[name], cpus),
                scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
            ).remote(self._job, label)
            heappush(self._due, (0.0, name))

    def _answer(self, call: Any, node: str) -> list[NodeEvent]:
        try:
            report = msgspec.msgpack.decode(self._ray.get(call), type=Report)
        except self._ray.exceptions.RayError as error:
            self._agents.pop(node, None)
            self._units.pop(node, None)
            self._views.pop(node, None)
            return [Lost(node, type(error).__name__)] if node in self._ready else []
        if report.failed is not None:
            raise report.failed.error
        heappush(self._due, (monotonic() + self.pause, node))
        found: list[NodeEvent] = []
        if report.ready and node not in self._ready:
            self._ready.add(node)
            found.append(Joined(node, self._workers[node]))
        self._tell(node, report)
        for each in report.done:
            self.done.setdefault(each.unit, each)
        return [*found, *(Finished(node, each.unit) for each in report.done)]

    def _tell(self, node: str, report: Report) -> None:
        first = self._numbers[node] * _WORKERS_A_NODE
        tally = self.tally
        for event in report.told:
            if isinstance(event, events.Advanced) and tally is not None:
                counts = {name: getattr(event, name) for name in Advanced.__struct_fields__ if name != "examples"}
                tally.heard(first + event.worker, Advanced(**counts))
            elif isinstance(event, events.Rejected):
                self._reporter.on(msgspec.structs.replace(event, worker=first + event.worker))
            elif not isinstance(event, _ONCE) or type(event) not in self._told:
                self._told.add(type(event))
                self._reporter.on(event)
        if tally is not None:
            tally.spent(report.stage_seconds, report.cpu_seconds)
        label = self._labels[node]
        self._views[node] = [
            msgspec.structs.replace(view, number=first + view.number, node=label) for view in report.workers
        ]
        if monotonic() - self._viewed < _VIEW_SECONDS:
            return
        self._viewed = monotonic()
        views = [view for views in self._views.values() for view in views]
        self.peak_bytes = max(self.peak_bytes, sum(view.memory_bytes for view in views))
        self._reporter.on(events.Workers(workers=views))

    def end(self) -> None:
        for agent in self._agents.values():
            self._ray.kill(agent)
