"""The scheduler's rules, on a cluster that is none and a clock that is told the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType

import msgspec
import pytest

from run.jobs import budget, receipt
from tokpress.documents.frame import Frame
from tokpress.errors import InputError, NotEnoughMemory, TokpressError
from tokpress.records import Input, Parity, Receipt, Slice, TokenizerInfo
from tokpress.run.budget import Budget
from tokpress.run.clusters.base import CRASHED, Ended, Hear, Usage, WorkerUsage
from tokpress.run.events import WorkerView
from tokpress.run.messages import (
    Advanced,
    Done,
    Encoded,
    Encoding,
    Failed,
    Order,
    Preload,
    Prepare,
    Prepared,
    Reply,
    Settings,
    Settle,
    Task,
)
from tokpress.run.quarantine import HUNG, OUT_OF_MEMORY
from tokpress.run.scheduler import Scheduler
from tokpress.storage.memory import MemoryStorage
from tokpress.store.manifest import encode

SETTINGS = Settings(engine="bytes", batch_bytes=100, threads=1)
INPUTS = [Input(path="a.jsonl", format="jsonl", size=100, mtime_ns=0)]
DEAD = Ended(f"{CRASHED}: SIGKILL")
MOST_POLLS = 10_000  # a scheduler that waits for what never comes fails here, and does not hang
Said = Reply | Ended


class FakeCluster:
    """Workers that do what a test says, when they are polled, and remember what they were told."""

    def __init__(self, most: int, behave: Callable[[int, Order], list[Said]]) -> None:
        self.most = most
        self.peak_bytes = 0
        self.behave = behave
        self.orders: list[tuple[int, Order]] = []
        self.started: list[int] = []
        self.stopped: list[int] = []
        self.memory: dict[int, int] = {}
        self.polled: Callable[[], None] = lambda: None
        self.unasked: list[tuple[int, Said]] = []  # said at the next poll
        self.polls = 0
        self._waiting: deque[tuple[int, Order]] = deque()

    def start(self, *numbers: int) -> None:
        self.started += numbers
        self._waiting = deque(entry for entry in self._waiting if entry[0] not in numbers)

    def send(self, number: int, order: Order) -> None:
        self.orders.append((number, order))
        self._waiting.append((number, order))

    def poll(self, seconds: float, hear: Hear) -> None:
        self.polls += 1
        assert self.polls < MOST_POLLS, f"it waits for ever, having said {self.orders}"
        self.polled()
        unasked, self.unasked = self.unasked, []
        for number, said in unasked:
            hear(number, said)
        dead: set[int] = set()
        for number, order in [self._waiting.popleft() for _ in range(len(self._waiting))]:
            for said in self.behave(number, order) if number not in dead else []:
                hear(number, said)
                if isinstance(said, Ended):
                    dead.add(number)

    def stop(self, *numbers: int) -> None:
        self.stopped += numbers
        self._waiting = deque(entry for entry in self._waiting if entry[0] not in numbers)

    def usage(self) -> Usage:
        return Usage({number: WorkerUsage(held) for number, held in self.memory.items()})

    def tasks(self, unit: int | None = None) -> list[Task]:
        return [order for _, order in self.orders if isinstance(order, Task) and unit in (None, order.unit)]

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Run:
    """A scheduler over a fake cluster, with a store that has receipts when a test puts them there."""

    def __init__(self, behave: Callable[[int, Order], list[Said]], *, workers: int = 1, units: int = 1) -> None:
        self.now = 0.0
        self.storage = MemoryStorage()
        self.cluster = FakeCluster(workers, behave)
        self.scheduler = Scheduler(self.cluster, self.storage, INPUTS, doc_timeout=30, clock=lambda: self.now)
        self.heard: list[tuple[int, Advanced]] = []
        self.views: list[WorkerView] = []
        self.units = [Task(unit=unit, slices=[Slice(0)]) for unit in range(units)]
        self.configure: Callable[[int, NotEnoughMemory], tuple[Settings, Budget]] | None = None

    def write(self, *receipts: Receipt) -> None:
        for entry in receipts:
            self.storage.put(entry.path("json"), encode(entry))

    def finish(self, memory: int = 10**12) -> list[Done]:
        self.scheduler.start()
        self.scheduler.configure(SETTINGS, budget(self.cluster.most, memory))
        return list(
            self.scheduler.run(
                self.units,
                lambda number, advanced: self.heard.append((number, advanced)),
                self.views.extend,
                configure=self.configure,
            )
        )

    def sum(self) -> Advanced:
        return sum((advanced for _, advanced in self.heard), Advanced())


def obedient(number: int, order: Order) -> list[Said]:
    if isinstance(order, Task):
        return [Advanced(docs=10, tokens=10), Encoded(unit=order.unit)]
    return []


class Settling:
    """Does all it is told, and says that a unit is done when it is told to settle, or when it has read the next one."""

    def __init__(self) -> None:
        self.closing: dict[int, int] = {}

    def __call__(self, number: int, order: Order) -> list[Said]:
        done: list[Said] = []
        if isinstance(order, Task | Settle) and number in self.closing:
            unit = self.closing.pop(number)
            done = [Done(unit=unit, receipts=[receipt(unit, 0)])]
        if isinstance(order, Task):
            self.closing[number] = order.unit
            return [Advanced(docs=1, tokens=1), *done, Encoded(unit=order.unit)]
        return done


class TestAssign:
    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_every_unit_is_done_once_with_its_receipts(self, workers: int) -> None:
        run = Run(Settling(), workers=workers, units=7)
        done = run.finish()
        assert sorted(entry.unit for entry in done) == list(range(7))
        assert all(entry.receipts == [receipt(entry.unit, 0)] for entry in done)
        assert sorted(task.unit for task in run.cluster.tasks()) == list(range(7))
        assert run.sum().docs == 7

    def test_a_worker_is_told_to_settle_once_when_nothing_is_left(self) -> None:
        run = Run(Settling(), workers=2, units=3)
        run.finish()
        assert sum(isinstance(order, Settle) for _, order in run.cluster.orders) == 2

    def test_one_that_had_settled_is_told_to_settle_again(self) -> None:
        """With --limit, units are given one by one: each has to be finished before the next is."""
        run = Run(Settling())
        run.scheduler.start()
        run.scheduler.configure(SETTINGS, budget(1))
        for unit in range(3):
            task = Task(unit=unit, slices=[Slice(0)])
            assert [entry.unit for entry in run.scheduler.run([task], lambda *_: None, lambda _: None)] == [unit]
        assert sum(isinstance(order, Settle) for _, order in run.cluster.orders) == 3

    def test_receipts_of_an_earlier_run_come_first(self) -> None:
        run = Run(Settling())
        before = receipt(0, 0, then=(0, 50))
        run.scheduler.start()
        run.scheduler.configure(SETTINGS, budget(1))
        [done] = run.scheduler.run(run.units, lambda *_: None, lambda _: None, receipts={0: [before]})
        assert done.receipts == [before, receipt(0, 0)]

    def test_a_budget_for_fewer_keeps_fewer(self) -> None:
        run = Run(Settling(), workers=3, units=4)
        run.scheduler.start()
        run.scheduler.configure(SETTINGS, budget(2))
        assert (run.scheduler.count, run.cluster.stopped) == (2, [2])

    def test_an_error_of_a_worker_is_raised(self) -> None:
        run = Run(lambda number, order: [Failed.of(InputError("gone"))] if isinstance(order, Task) else [])
        with pytest.raises(InputError, match="gone"):
            run.finish()

    def test_of_two_errors_the_first_is_raised(self) -> None:
        """The later one may follow from it."""
        errors = [InputError("the disk is gone"), InputError("there is no such file")]
        run = Run(
            lambda number, order: [Failed.of(errors[number])] if isinstance(order, Task) else [], workers=2, units=2
        )
        with pytest.raises(InputError, match="the disk is gone"):
            run.finish()


class TestDeath:
    def test_in_the_middle_goes_on_after_the_last_receipt(self) -> None:
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and order.first_shard == 0:
                run.write(receipt(0, 0, then=(0, 40), docs=4))
                return [Advanced(docs=4, tokens=4), Advanced(docs=3, tokens=3), DEAD]
            return settling(number, order)

        run = Run(behave)
        [done] = run.finish()
        assert [task.start for task in run.cluster.tasks()] == [None, (0, 40)]
        assert [task.first_shard for task in run.cluster.tasks()] == [0, 1]
        assert done.receipts == [receipt(0, 0, then=(0, 40), docs=4), receipt(0, 0)]
        assert run.cluster.started == [0, 0]

    def test_what_has_no_receipt_is_taken_back(self) -> None:
        """What was heard in all is what is in the store: four documents with a receipt, one of the second try."""
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and order.first_shard == 0:
                run.write(receipt(0, 0, then=(0, 40), docs=4))
                return [Advanced(docs=9, tokens=90, rejects=5, input_bytes=900), DEAD]
            return settling(number, order)

        run = Run(behave)
        run.finish()
        assert (run.sum().docs, run.sum().tokens, run.sum().rejects) == (4 + 1, 4 + 1, 0)

    def test_a_second_one_takes_back_only_what_was_said_since_the_first(self) -> None:
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and order.first_shard < 2:
                number_of_shard = order.first_shard
                run.write(receipt(0, number_of_shard, then=(0, 40 * (number_of_shard + 1)), docs=4))
                return [Advanced(docs=9, tokens=90), DEAD]
            return settling(number, order)

        run = Run(behave)
        run.finish()
        assert [task.first_shard for task in run.cluster.tasks()] == [0, 1, 2]
        assert (run.sum().docs, run.sum().tokens) == (4 + 4 + 1, 4 + 4 + 1)

    def test_after_the_last_receipt_is_no_loss(self) -> None:
        """It died just before it could say so."""

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task):
                run.write(receipt(0, 0, docs=4))
                return [Advanced(docs=4, tokens=4), DEAD]
            return []

        run = Run(behave)
        [done] = run.finish()
        assert (done.receipts, len(run.cluster.tasks()), run.sum().docs) == ([receipt(0, 0, docs=4)], 1, 4)

    def test_while_a_unit_is_on_its_way_to_the_disk_loses_both(self) -> None:
        settling = Settling()
        died: list[int] = []

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and order.unit == 1 and not died:
                died.append(number)
                settling.closing.clear()
                return [Encoding(first=(0, 1), last=(0, 9)), DEAD]
            return settling(number, order)

        run = Run(behave, units=2)
        assert sorted(entry.unit for entry in run.finish()) == [0, 1]
        assert [task.careful for task in run.cluster.tasks(0)] == [None, None]  # only what it was encoding is suspected
        assert [task.careful for task in run.cluster.tasks(1)] == [None, ((0, 1), (0, 9))]

    def test_of_one_that_had_nothing_to_do_is_replaced(self) -> None:
        settling = Settling()
        died: list[int] = []

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Settings) and not died:
                died.append(number)
                return [DEAD]
            return settling(number, order)

        run = Run(behave)
        assert [entry.unit for entry in run.finish()] == [0]
        assert run.cluster.started == [0, 0]

    def test_that_nothing_comes_of_is_not_tried_for_ever(self) -> None:
        run = Run(lambda number, order: [DEAD] if isinstance(order, Task) else [])
        with pytest.raises(TokpressError, match=r"workers keep dying on unit 0.*SIGKILL"):
            run.finish()
        assert 3 < len(run.cluster.tasks()) < 20


class TestConvict:
    def poisoned(self, cause: Said, *, alone_only: bool = False) -> Callable[[int, Order], list[Said]]:
        """Dies of the document at 5 whenever it is encoded."""
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and (0, 5) not in order.quarantined:
                last = (0, 5) if order.careful else (0, 9)
                first = (0, 5) if order.careful else (0, 0)
                return [Encoding(first=first, last=last), cause]
            return settling(number, order)

        return behave

    def test_two_deaths_on_one_document_alone_set_it_aside(self) -> None:
        run = Run(self.poisoned(DEAD))
        [done] = run.finish()
        tried = run.cluster.tasks()
        assert [task.careful for task in tried] == [None, *[((0, 0), (0, 9))] * 3]
        assert [task.quarantined for task in tried] == [{}, {}, {}, {(0, 5): CRASHED}]
        assert done.unit == 0

    def test_who_takes_a_dead_one_s_place_is_told_how_to_work(self) -> None:
        """Else it would encode with the reference, and know nothing of val."""
        run = Run(self.poisoned(DEAD))
        run.finish()
        told = [order for _, order in run.cluster.orders if isinstance(order, Settings | Task)]
        assert [order if isinstance(order, Settings) else Task for order in told] == [SETTINGS, Task] * 4

    def test_the_verdict_is_known_to_the_next_run(self) -> None:
        first = Run(self.poisoned(DEAD))
        first.finish()
        again = Run(self.poisoned(DEAD))
        again.storage = first.storage
        again.scheduler = Scheduler(again.cluster, first.storage, INPUTS, doc_timeout=30, clock=lambda: 0.0)
        again.finish()
        assert [task.quarantined for task in again.cluster.tasks()] == [{(0, 5): CRASHED}]

    def test_a_hang_is_a_death_after_the_time_that_a_document_may_take(self) -> None:
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and (0, 5) not in order.quarantined:
                return [Encoding(first=(0, 5), last=(0, 5))]
            return settling(number, order)

        run = Run(behave)

        def tick() -> None:
            run.now += 1

        run.cluster.polled = tick
        run.finish()
        assert run.cluster.tasks()[-1].quarantined == {(0, 5): HUNG}
        assert run.cluster.stopped.count(0) == 3
        assert 90 < run.now < 110

    def test_silence_between_batches_is_no_hang(self) -> None:
        """A disk may take its time; only a document that is being encoded is watched."""

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task):
                return [Encoding(first=(0, 0), last=(0, 9)), Advanced(docs=1, tokens=1)]
            return [Done(unit=0, receipts=[receipt(0, 0)])] if isinstance(order, Settle) else []

        run = Run(behave)

        def tick() -> None:
            run.now += 1000
            if run.cluster.polls == 5:
                run.cluster.unasked.append((0, Encoded(unit=0)))

        run.cluster.polled = tick
        assert len(run.finish()) == 1
        assert run.cluster.started == [0]


class TestMemory:
    def greedy(self, text_bytes: int) -> Callable[[int, Order], list[Said]]:
        """Takes 3,000 bytes for the document at 5."""
        settling = Settling()

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and (0, 5) not in order.quarantined:
                run.cluster.memory[number] = 3000
                return [Encoding(first=(0, 5), last=(0, 5), text_bytes=text_bytes)]
            run.cluster.memory[number] = 10
            return settling(number, order)

        run = Run(behave)
        self.run = run

        def tick() -> None:
            run.now += 1

        run.cluster.polled = tick
        return behave

    def test_a_document_that_exhausts_it_is_set_aside(self) -> None:
        self.greedy(text_bytes=2)
        self.run.finish(memory=1000)
        assert self.run.cluster.tasks()[-1].quarantined == {(0, 5): OUT_OF_MEMORY}

    def test_one_that_is_long_is_the_user_s_to_decide_on(self) -> None:
        """Whether a document is stored must not depend on --memory."""
        self.greedy(text_bytes=1000)
        with pytest.raises(NotEnoughMemory, match=r"the document at 5 of a\.jsonl, 1,000 bytes of text"):
            self.run.finish(memory=1000)

    def test_where_it_is_short_half_of_the_workers_go_on(self) -> None:
        settling = Settling()
        told: list[int] = []

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and len(run.cluster.started) <= 4 and number == 3:
                return [Failed.of(NotEnoughMemory("too large beside three others"))]
            return settling(number, order)

        run = Run(behave, workers=4, units=8)

        def fewer(workers: int, why: NotEnoughMemory) -> tuple[Settings, Budget]:
            assert "too large" in str(why)
            told.append(workers)
            settling.closing.clear()
            return SETTINGS, budget(workers)

        run.configure = fewer
        done = run.finish()
        assert (told, run.scheduler.count) == ([2], 2)
        assert sorted(entry.unit for entry in done) == list(range(8))
        assert sorted(set(run.cluster.started[4:])) == [0, 1]
        assert run.sum().docs == 8  # what the others had done and not finished was taken back

    def test_what_was_finished_before_workers_were_let_go_is_not_done_again(self) -> None:
        settling = Settling()
        kept = receipt(0, 0, then=(0, 40), docs=4)

        def behave(number: int, order: Order) -> list[Said]:
            if isinstance(order, Task) and len(run.cluster.started) == 2:
                if number == 1:
                    return [Failed.of(NotEnoughMemory("too large beside another"))]
                run.write(kept)
                return [Advanced(docs=6, tokens=6)]
            return settling(number, order)

        run = Run(behave, workers=2, units=2)
        run.configure = lambda workers, why: (SETTINGS, budget(workers))
        done = {entry.unit: entry.receipts for entry in run.finish()}
        assert [(task.first_shard, task.start) for task in run.cluster.tasks(0)] == [(0, None), (1, (0, 40))]
        assert done == {0: [kept, receipt(0, 0)], 1: [receipt(1, 0)]}
        assert run.sum().docs == 4 + 1 + 1

    def test_one_worker_alone_has_nobody_to_let_go(self) -> None:
        run = Run(lambda number, order: [Failed.of(NotEnoughMemory("x"))] if isinstance(order, Task) else [])
        run.configure = lambda workers, why: (SETTINGS, budget(workers))
        with pytest.raises(NotEnoughMemory):
            run.finish()

    def test_people_see_what_workers_hold(self) -> None:
        run = Run(Settling())
        run.cluster.memory[0] = 77
        run.finish()
        assert run.views[0] == WorkerView(number=0, unit=None, cpu_percent=0.0, memory_bytes=77)


PARITY = Parity(outcome="equal", engine="bytes", reference="bytes", docs=1, bytes=10)
PREPARED = Prepared(
    info=TokenizerInfo(kind="bytes", fingerprint="f", vocab_size=257, special_tokens={}),
    frame=Frame(None, None, 257),
    parity=PARITY,
    first_document=None,
    footprint=1,
    memory_per_byte=4,
)


class TestPrepare:
    def test_is_shared_out_and_added_up(self) -> None:
        run = Run(lambda number, order: [PREPARED] if isinstance(order, Prepare) else [], workers=10)
        run.scheduler.start()
        assert run.scheduler.prepare().parity.docs == 8
        parts = [(order.number, order.of) for _, order in run.cluster.orders if isinstance(order, Prepare)]
        assert parts == [(number, 8) for number in range(8)]
        assert sum(isinstance(order, Preload) for _, order in run.cluster.orders) == 2

    def test_after_a_death_has_a_smaller_sample(self) -> None:
        def behave(number: int, order: Order) -> list[Said]:
            return [DEAD] if isinstance(order, Prepare) and order.attempt < 2 else [PREPARED]

        run = Run(behave)
        run.scheduler.start()
        assert run.scheduler.prepare() == PREPARED
        assert [order.attempt for _, order in run.cluster.orders if isinstance(order, Prepare)] == [0, 1, 2]

    @pytest.mark.parametrize("hangs", [False, True])
    def test_that_always_kills_or_hangs_is_told(self, hangs: bool) -> None:
        run = Run(lambda number, order: [] if hangs else [DEAD])

        def tick() -> None:
            run.now += 10

        run.cluster.polled = tick
        run.scheduler.start()
        with pytest.raises(TokpressError, match=HUNG if hangs else "SIGKILL"):
            run.scheduler.prepare()
        assert run.now <= 300


def test_a_task_keeps_what_was_quarantined_before() -> None:
    run = Run(Settling())
    run.units = [msgspec.structs.replace(run.units[0], quarantined={(0, 1): HUNG})]
    run.finish()
    assert run.cluster.tasks()[0].quarantined == {(0, 1): HUNG}
