"""Who does which unit, and what becomes of it when a worker dies.

In: tasks, and a cluster that runs workers somewhere. Out: units as they are finished. All policy is here: tasks are
assigned, workers watched, a document that kills them is convicted (`Quarantine`), what a dead one did not finish is taken
back and tried again, and workers are let go when a record does not fit beside so many. A cluster only carries it out, so
that all of this is tested with one that is none, and with a clock that is told the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic

import msgspec

from tokpress.errors import NotEnoughMemory, TokpressError
from tokpress.records import Input, Receipt
from tokpress.run.assigned import Assigned
from tokpress.run.budget import Budget
from tokpress.run.clusters.base import Cluster, Ended, Usage
from tokpress.run.events import WorkerView
from tokpress.run.hopeless import check_no_large_document, check_readable_again
from tokpress.run.messages import (
    Advanced,
    Done,
    Encoded,
    Encoding,
    Failed,
    Preload,
    Prepare,
    Prepared,
    Reply,
    Sampling,
    Settings,
    Settle,
    Task,
)
from tokpress.run.quarantine import HUNG, OUT_OF_MEMORY, Quarantine
from tokpress.run.tasks import continued, lost
from tokpress.storage import open_run
from tokpress.storage.base import Storage
from tokpress.store.receipts import unit_receipts

_POLL_SECONDS = 0.05
_OVER_BUDGET = 1.05  # of the run's memory, and
_RUNAWAY = 2  # times a worker's share of it: then a document is exhausting it
_PREPARE_TRIES = 3
_MOST_PROVERS = 8  # more would spend their time finding their part of the sample
_PREPARE_SECONDS = 60.0  # to start and to load a tokenizer; then the sample has what one document may take
_VIEW_SECONDS = 0.5

Configure = Callable[[int, NotEnoughMemory], tuple[Settings, Budget]]  # for at most so many workers, and why
Heard = Callable[[int, Advanced], None]
Watched = Callable[[list[WorkerView]], None]


class Scheduler:
    """Made for one run. The cluster is entered and left by the caller."""

    def __init__(
        self,
        cluster: Cluster,
        storage: Storage,
        inputs: Sequence[Input],
        *,
        doc_timeout: float,
        memory_bytes: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._cluster = cluster
        self._storage = storage
        self._inputs = inputs
        self._doc_timeout = doc_timeout
        self._memory_bytes = memory_bytes  # of the whole run, also before it is known what a worker holds
        self._clock = clock
        self._quarantine = Quarantine(storage)
        self._workers: dict[int, Assigned] = {}
        self._settings: Settings | None = None
        self._budget: Budget | None = None
        self._receipts: dict[int, list[Receipt]] = {}  # of units under way: what was there before
        self._waiting: deque[Task] = deque()
        self._done: deque[Done] = deque()
        self._failure: Exception | None = None
        self._drain_until: float | None = None
        self._used = Usage()
        self._measured = self._viewed = -1.0
        self._heard: Heard = lambda *_: None
        self._watched: Watched = lambda _: None

    @property
    def count(self) -> int:
        return len(self._workers)

    @property
    def threads(self) -> int:
        """That each worker encodes on."""
        return self._settings.threads if self._settings else 1

    def start(self) -> None:
        """As many workers as the cluster can run, so that they load while something else is done."""
        self._start(*range(self._cluster.most))

    def prepare(self) -> Prepared:
        """Has the first workers prove the engine, each on a part of the sample, while the others load theirs."""
        provers = min(self._cluster.most, _MOST_PROVERS)
        for number in self._workers:
            self._cluster.send(number, Prepare(number=number, of=provers) if number < provers else Preload())
        answers: dict[int, Prepared] = {}
        attempts = dict.fromkeys(range(provers), 0)

        def hear(number: int, said: Reply | Ended) -> None:
            if isinstance(said, Prepared):
                answers[number] = said
            else:
                self._hear(number, said)

        while len(answers) < provers:
            self._cluster.poll(_POLL_SECONDS, hear)
            if self._failure is not None:
                raise self._failure
            for number in attempts.keys() - answers.keys():
                attempts[number] += self._prepare_again(self._workers[number], provers, attempts[number] + 1)
        self._usage()  # what they hold counts for the peak, also of a run that is over before the next look
        first, *others = (answers[number] for number in range(provers))
        return sum(others, first)

    def _prepare_again(self, worker: Assigned, provers: int, attempt: int) -> bool:
        """Whether a worker died of the sample, or hangs: then another one has a smaller sample."""
        cause = worker.ended
        limit = self._doc_timeout if worker.sampling else max(_PREPARE_SECONDS, self._doc_timeout)
        if cause is None and self._clock() - worker.heard > limit:
            cause = HUNG
        if cause is None and self._memory_bytes and self._usage().memory_bytes > self._memory_bytes * _OVER_BUDGET:
            cause = OUT_OF_MEMORY
        if cause is None:
            return False
        if attempt == _PREPARE_TRIES:
            raise TokpressError(
                f"a worker dies each time it loads the tokenizer or encodes a sample of the inputs ({cause}). Is there "
                "enough memory? Try the reference alone: --engine huggingface, sentencepiece or tiktoken"
            )
        check_readable_again(self._inputs, cause)
        self._start(worker.number)
        self._cluster.send(worker.number, Prepare(number=worker.number, of=provers, attempt=attempt))
        return True

    def configure(self, settings: Settings, budget: Budget) -> None:
        """Keeps as many workers as the budget allows and tells them how to work."""
        self._settings, self._budget = settings, budget
        if settings.run is not None:
            self._storage = open_run(self._storage, settings.run)
            self._quarantine.write_to(self._storage)
        surplus = [number for number in self._workers if number >= budget.workers]
        self._cluster.stop(*surplus)
        self._workers = {number: worker for number, worker in self._workers.items() if number not in surplus}
        for number in self._workers:
            self._cluster.send(number, settings)

    def run(
        self,
        tasks: Sequence[Task],
        heard: Heard,
        watched: Watched,
        *,
        receipts: Mapping[int, list[Receipt]] | None = None,
        configure: Configure | None = None,
        more: Callable[[], bool] = lambda: False,
    ) -> Iterator[Done]:
        """Units as they are finished, in no order, with all their receipts. Raises what a worker could not deal with.

        `receipts` are those of units that were begun before. `configure` says how fewer workers are to work, where a record
        does not fit beside so many: then the run goes on with half of them. Without it, that is an error. `more` is asked
        again and again whether something may still be added.
        """
        self.add(tasks, receipts or {})
        self._heard, self._watched = heard, watched
        while more() or self._goes_on:
            if self._drain_until is not None and self._clock() > self._drain_until:
                return
            for worker in self._workers.values():
                self._assign(worker)
            self._cluster.poll(_POLL_SECONDS, self._hear)
            try:
                self._attend()
            except NotEnoughMemory as error:
                if configure is None or self.count == 1:
                    raise
                self._halve(configure, error)
            while self._done:
                yield self._done.popleft()

    @property
    def _goes_on(self) -> bool:
        waiting = self._waiting and self._drain_until is None
        return bool(waiting) or any(worker.is_busy for worker in self._workers.values())

    def add(self, tasks: Sequence[Task], receipts: Mapping[int, list[Receipt]]) -> None:
        self._receipts.update({task.unit: receipts.get(task.unit, []) for task in tasks})
        self._waiting.extend(self._quarantine.known(task) for task in tasks)

    def drain(self, seconds: float) -> None:
        """Takes nothing new, and gives what is under way so long. Then `run` returns, whatever is left."""
        self._drain_until = self._clock() + seconds

    def _attend(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for worker in list(self._workers.values()):
            cause = self._trouble_with(worker)
            if cause is not None:
                self._replace(worker, cause)

    def _start(self, *numbers: int) -> None:
        self._cluster.start(*numbers)
        for number in numbers:
            self._workers[number] = Assigned(number, self._clock())

    def _assign(self, worker: Assigned) -> None:
        if worker.task is not None or worker.ended is not None:
            return
        if self._waiting and self._drain_until is None:
            worker.task, worker.encoding, worker.heard = self._waiting.popleft(), None, self._clock()
            worker.settling = False
            self._cluster.send(worker.number, worker.task)
        elif worker.closing and not worker.settling:
            worker.settling = True
            self._cluster.send(worker.number, Settle())

    def _hear(self, number: int, said: Reply | Ended) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.heard = self._clock()
        match said:
            case Ended(cause):
                worker.ended = cause
            case Sampling():
                worker.sampling = True
            case Encoding():
                worker.encoding = said
            case Advanced():
                worker.encoding = None
                if worker.task is not None:
                    unit = worker.task.unit
                    worker.heard_of[unit] = worker.heard_of.get(unit, Advanced()) + said
                self._heard(number, said)
            case Encoded() if worker.task is not None:
                worker.closing.append(worker.task)
                worker.task = worker.encoding = None
            case Done(unit=unit):
                worker.closing = [task for task in worker.closing if task.unit != unit]
                worker.heard_of.pop(unit, None)
                before = self._receipts.pop(unit, [])
                self._done.append(msgspec.structs.replace(said, receipts=[*before, *said.receipts]))
            case Failed():
                self._failure = self._failure or said.error

    def _trouble_with(self, worker: Assigned) -> str | None:
        """Why a worker has to be replaced, if it has to."""
        if worker.ended is not None:
            return worker.ended
        if not worker.is_busy:
            return None
        budget, used = self._budget, self._usage()
        mine = used.workers[worker.number].memory_bytes if worker.number in used.workers else 0
        over_budget = budget is not None and used.memory_bytes > budget.memory_bytes * _OVER_BUDGET
        if budget and over_budget and mine > _RUNAWAY * budget.worker_bytes:
            check_no_large_document(worker.encoding, mine, self._inputs)
            return OUT_OF_MEMORY
        if worker.encoding and self._clock() - worker.heard > self._doc_timeout:
            return HUNG
        return None

    def _replace(self, worker: Assigned, cause: str) -> None:
        """Puts a fresh worker in the place of a dead or silent one. What is left of its tasks goes on after their last
        receipts; if one was its unit's last, the worker died just before it could say so."""
        check_readable_again(self._inputs, cause)
        self._cluster.stop(worker.number)
        left = self._take_back(worker)
        self._start(worker.number)
        if self._settings is not None:
            self._cluster.send(worker.number, self._settings)
        self._quarantine.look_again()
        for task in left:
            suspect = worker.encoding if worker.task is not None and task.unit == worker.task.unit else None
            self._waiting.appendleft(self._quarantine.known(self._quarantine.retry(task, suspect, cause)))

    def _take_back(self, worker: Assigned) -> list[Task]:
        """What is left of a worker's tasks. What it said it had done, but has no receipt for, is taken back: it will be done
        again."""
        self._measured = -1.0  # what it held is free
        left = []
        for task in worker.tasks:
            receipts = unit_receipts(self._storage, task.unit)
            if task.unit in worker.heard_of:
                self._heard(worker.number, lost(worker.heard_of[task.unit], task, receipts))
            rest = continued(task, receipts)
            if rest is None:
                self._receipts.pop(task.unit, None)
                self._done.append(Done(unit=task.unit, receipts=receipts))
            else:
                self._receipts[task.unit] = receipts
                left.append(rest)
        return left

    def _halve(self, configure: Configure, why: NotEnoughMemory) -> None:
        """Goes on with half the workers: all are stopped, because each has its share of the memory already."""
        workers = list(self._workers.values())
        self._cluster.stop(*self._workers)
        self._workers = {}
        for worker in workers:
            self._waiting.extendleft(self._take_back(worker))
        self._start(*range(len(workers) // 2))
        self.configure(*configure(len(workers) // 2, why))

    def _usage(self) -> Usage:
        """Asked at every message, measured now and then: it takes a tenth of a millisecond a worker."""
        now = self._clock()
        if self._measured >= 0 and now - self._measured < _POLL_SECONDS:
            return self._used
        self._used, self._measured = self._cluster.usage(), now
        if self._viewed < 0 or now - self._viewed > _VIEW_SECONDS:
            self._viewed = now
            self._watched([self._view(number) for number in self._used.workers if number in self._workers])
        return self._used

    def _view(self, number: int) -> WorkerView:
        task, used = self._workers[number].task, self._used.workers[number]
        return WorkerView(
            number=number,
            unit=task.unit if task else None,
            cpu_percent=used.cpu_percent,
            memory_bytes=used.memory_bytes,
        )
