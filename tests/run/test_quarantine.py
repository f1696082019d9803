"""Which document killed the worker: convicted alone and twice, and nothing tried for ever."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.errors import TokpressError
from tokpress.records import Place, Slice
from tokpress.run.clusters.base import CRASHED
from tokpress.run.messages import Encoding, Task
from tokpress.run.quarantine import HUNG, OUT_OF_MEMORY, Quarantine
from tokpress.storage.memory import MemoryStorage

TASK = Task(unit=3, slices=[Slice(0)])
BATCH = Encoding(first=(0, 100), last=(0, 900))
CAREFUL = msgspec.structs.replace(TASK, careful=((0, 100), (0, 900)))


def alone(position: int) -> Encoding:
    return Encoding(first=(0, position), last=(0, position))


class TestDeath:
    def test_between_batches_is_bad_luck(self) -> None:
        assert Quarantine(MemoryStorage()).retry(TASK, None, f"{CRASHED}: SIGKILL") == TASK

    def test_inside_a_batch_makes_careful(self) -> None:
        assert Quarantine(MemoryStorage()).retry(TASK, BATCH, f"{CRASHED}: SIGSEGV") == CAREFUL

    def test_inside_another_batch_makes_careful_there(self) -> None:
        other = Encoding(first=(0, 1000), last=(1, 50))
        quarantine = Quarantine(MemoryStorage())
        task = quarantine.retry(quarantine.retry(TASK, BATCH, CRASHED), other, CRASHED)
        assert task.careful == ((0, 1000), (1, 50))

    def test_on_a_document_once_convicts_nobody(self) -> None:
        assert Quarantine(MemoryStorage()).retry(CAREFUL, alone(200), CRASHED) == CAREFUL

    @pytest.mark.parametrize(
        ("cause", "reason"),
        [
            (f"{CRASHED}: SIGSEGV", CRASHED),
            (f"{CRASHED}: exit code 3", CRASHED),
            (HUNG, HUNG),
            (OUT_OF_MEMORY, OUT_OF_MEMORY),
        ],
    )
    def test_on_the_same_document_twice_sets_it_aside(self, cause: str, reason: str) -> None:
        quarantine = Quarantine(MemoryStorage())
        task = quarantine.retry(quarantine.retry(CAREFUL, alone(200), CRASHED), alone(200), cause)
        assert task == msgspec.structs.replace(CAREFUL, quarantined={(0, 200): reason})

    def test_on_different_documents_convicts_nobody(self) -> None:
        quarantine, task = Quarantine(MemoryStorage()), CAREFUL
        for position in (200, 300, 400):
            task = quarantine.retry(task, alone(position), CRASHED)
        assert task.quarantined == {}

    def test_on_equal_positions_of_other_inputs_convicts_nobody(self) -> None:
        quarantine = Quarantine(MemoryStorage())
        task = quarantine.retry(CAREFUL, Encoding(first=(0, 200), last=(0, 200)), CRASHED)
        assert quarantine.retry(task, Encoding(first=(1, 200), last=(1, 200)), CRASHED).quarantined == {}

    def test_of_a_batch_of_one_document_is_its_first_of_three(self) -> None:
        """As a batch it may have died of what it shared the process with; alone it dies twice."""
        quarantine, task = Quarantine(MemoryStorage()), TASK
        for _ in range(2):
            task = quarantine.retry(task, alone(200), CRASHED)
            assert task.quarantined == {}
        assert quarantine.retry(task, alone(200), CRASHED).quarantined == {(0, 200): CRASHED}

    def test_of_the_next_culprit_keeps_the_first_set_aside(self) -> None:
        quarantine, task = Quarantine(MemoryStorage()), CAREFUL
        for position in (200, 200, 700, 700):
            task = quarantine.retry(task, alone(position), CRASHED)
        assert set(task.quarantined) == {(0, 200), (0, 700)}
        assert task.careful == CAREFUL.careful


class TestVerdict:
    def test_is_known_to_the_next_run(self) -> None:
        """A coordinator that was killed need not find the culprit twice."""
        storage = MemoryStorage()
        quarantine, task = Quarantine(storage), CAREFUL
        for _ in range(2):
            task = quarantine.retry(task, alone(200), HUNG)
        assert Quarantine(storage).known(TASK).quarantined == {(0, 200): HUNG}
        assert Quarantine(storage).known(msgspec.structs.replace(TASK, unit=4)).quarantined == {}

    def test_is_stored_before_the_task_is_tried_again(self) -> None:
        storage = MemoryStorage()
        quarantine = Quarantine(storage)
        quarantine.retry(CAREFUL, alone(200), CRASHED)
        assert storage.list() == []
        quarantine.retry(CAREFUL, alone(200), CRASHED)
        assert len(storage.list("quarantine")) == 1

    def test_of_another_who_came_to_it_first_stands(self) -> None:
        storage = MemoryStorage()
        for cause in (HUNG, CRASHED):
            quarantine = Quarantine(storage)
            for _ in range(2):
                quarantine.retry(CAREFUL, alone(200), cause)
        assert Quarantine(storage).known(TASK).quarantined == {(0, 200): HUNG}


class TestEnd:
    @pytest.mark.parametrize("last", [None, BATCH])
    def test_a_unit_that_only_kills_workers_is_given_up(self, last: Encoding | None) -> None:
        quarantine, tries = Quarantine(MemoryStorage()), 0
        with pytest.raises(TokpressError, match=r"workers keep dying on unit 3.*SIGKILL.*--memory"):  # noqa: PT012
            while tries < 100:
                quarantine.retry(TASK, last, f"{CRASHED}: SIGKILL")
                tries += 1
        assert 3 <= tries < 20

    def test_a_shard_that_came_into_being_is_progress(self) -> None:
        quarantine = Quarantine(MemoryStorage())
        for shard in range(100):
            for _ in range(3):
                quarantine.retry(msgspec.structs.replace(TASK, first_shard=shard), None, CRASHED)

    def test_a_batch_that_was_written_and_lost_is_none(self) -> None:
        """A disk that fails each time a shard is synced is not tried for ever."""
        quarantine = Quarantine(MemoryStorage())
        with pytest.raises(TokpressError):  # noqa: PT012
            for _ in range(100):
                quarantine.retry(TASK, None, CRASHED)

    def test_units_do_not_count_for_each_other(self) -> None:
        quarantine = Quarantine(MemoryStorage())
        for unit in range(100):
            quarantine.retry(msgspec.structs.replace(TASK, unit=unit), None, CRASHED)

    @given(
        poison=st.sets(st.integers(0, 199), max_size=30),
        batch=st.integers(1, 40),
        bad_luck=st.sets(st.integers(0, 60), max_size=3),
    )
    def test_exactly_the_poison_is_found(self, poison: set[int], batch: int, bad_luck: set[int]) -> None:
        """200 documents in batches: each try goes from the start and dies of the first poison, or of bad luck."""
        quarantine, task = Quarantine(MemoryStorage()), TASK
        for tried in range(1000):
            died, last = run(task, poison, batch)
            if not died and tried not in bad_luck:
                break
            task = quarantine.retry(task, last if died else None, CRASHED)
        assert set(task.quarantined) == {(0, position) for position in poison}


def run(task: Task, poison: set[int], batch: int) -> tuple[bool, Encoding | None]:
    """What a worker would do: whether it dies, and what it said last."""
    left = [position for position in range(200) if (0, position) not in task.quarantined]
    for i in range(0, len(left), batch):
        places: list[Place] = [(0, position) for position in left[i : i + batch]]
        careful = task.careful is not None and not (task.careful[1] < places[0] or places[-1] < task.careful[0])
        for part in [[place] for place in places] if careful else [places]:
            if any(position in poison for _, position in part):
                return True, Encoding(first=part[0], last=part[-1])
    return False, None
