"""Large records take turns, and what can never fit is said at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import stored

import tokpress
from tokpress.config import parse_size
from tokpress.errors import NotEnoughMemory
from tokpress.run.budget import plan_budget
from tokpress.run.events import Event, FewerWorkers
from tokpress.run.gate import Gate, Room
from tokpress.storage.base import Storage
from tokpress.store import unfinished as output

ROOM = Room(ordinary=10, share=100, most=1000, budget=5000)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[[], Gate]]:
    (tmp_path / "lock").touch()
    opened = os.open(tmp_path / "lock", os.O_RDONLY)
    yield lambda: Gate(ROOM, opened)
    os.close(opened)


@pytest.fixture
def waiting() -> Iterator[Callable[[Gate, int], threading.Event]]:
    """Asks in a thread; the event is set when it is let in."""
    threads = []

    def ask(gate: Gate, need: int) -> threading.Event:
        inside = threading.Event()

        def enter() -> None:
            gate.wait_for(need, "a.jsonl")
            inside.set()

        thread = threading.Thread(target=enter)
        thread.start()
        threads.append(thread)
        return inside

    yield ask
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


class TestTurns:
    def test_an_ordinary_batch_never_waits(self, gate: Callable[[], Gate]) -> None:
        large, ordinary = gate(), gate()
        large.wait_for(1000, "a.jsonl")
        ordinary.wait_for(10, "a.jsonl")

    def test_records_within_their_shares_do_not_wait_for_each_other(self, gate: Callable[[], Gate]) -> None:
        for one in (gate(), gate(), gate()):
            one.wait_for(100, "a.jsonl")

    @pytest.mark.parametrize(("first", "second"), [(1000, 1000), (1000, 50), (50, 1000)])
    def test_a_record_beyond_its_share_is_alone(
        self, gate: Callable[[], Gate], waiting: Callable[[Gate, int], threading.Event], first: int, second: int
    ) -> None:
        inside, outside = gate(), gate()
        inside.wait_for(first, "a.jsonl")
        let_in = waiting(outside, second)
        assert not let_in.wait(0.2)
        inside.leave()
        assert let_in.wait(10)

    def test_a_record_may_grow(self, gate: Callable[[], Gate], waiting: Callable[[Gate, int], threading.Event]) -> None:
        growing, other = gate(), gate()
        for need in (5, 50, 99, 500, 1000, 50):
            growing.wait_for(need, "a.jsonl")
        assert not waiting(other, 50).wait(0.2)
        growing.leave()

    def test_two_that_grow_at_once_do_not_wait_for_ever(
        self, gate: Callable[[], Gate], waiting: Callable[[Gate, int], threading.Event]
    ) -> None:
        one, two = gate(), gate()
        one.wait_for(50, "a.jsonl")
        two.wait_for(50, "a.jsonl")
        first = waiting(one, 500)
        second = waiting(two, 500)
        assert first.wait(0.5) != second.wait(0.5)
        for gate_, let_in in ((one, first), (two, second)):
            if let_in.is_set():
                gate_.leave()
        assert first.wait(10)
        assert second.wait(10)

    def test_the_dead_give_their_turn_back(
        self, gate: Callable[[], Gate], waiting: Callable[[Gate, int], threading.Event], tmp_path: Path
    ) -> None:
        code = f"""
import os
from tokpress.run.gate import Gate, Room
lock = os.open({str(tmp_path / "lock")!r}, os.O_RDONLY)
Gate(Room(ordinary=10, share=100, most=1000, budget=5000), lock).wait_for(500, "a")
print("inside", flush=True)
input()
"""
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        let_in = waiting(gate(), 500)
        assert not let_in.wait(0.2)
        process.kill()
        process.communicate()
        assert let_in.wait(10)


class TestTooLarge:
    def test_what_can_never_fit_is_an_error(self, gate: Callable[[], Gate]) -> None:
        with pytest.raises(NotEnoughMemory, match=r"a record of a\.jsonl may need .* --memory \d+GB"):
            gate().wait_for(1001, "a.jsonl")

    @pytest.mark.parametrize("workers", [1, 2, 8])
    def test_the_memory_it_asks_for_is_enough(self, workers: int) -> None:
        need = 5 * 10**9
        with pytest.raises(NotEnoughMemory) as error:
            Gate(plan_budget(4 * 10**9, workers, 3 * 10**8, 100).room).wait_for(need, "a.jsonl")
        asked = parse_size(re.search(r"--memory (\d+GB)", str(error.value))[1])  # type: ignore[index]
        assert plan_budget(asked, workers, 3 * 10**8, 100).room.most >= need


class TestBuild:
    """Lines that two workers cannot hold at once within the memory that is given."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        with (tmp_path / "long.jsonl").open("w") as file:
            for i in range(6):
                file.write(json.dumps({"text": f"document {i} " * 1_000_000}) + "\n")
        return tmp_path / "long.jsonl"

    def test_stays_within_its_memory_and_changes_nothing(self, tmp_path: Path, source: Path) -> None:
        whole = tokpress.build(source, tokenizer="bytes", out=tmp_path / "whole", workers=1)
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "tight", workers=2, memory="700MB")
        run = store.manifest.run
        assert run.workers == 2
        assert run.peak_memory_bytes < 1.1 * 700e6
        assert stored(store.path) == stored(whole.path)

    def test_what_does_not_fit_beside_another_worker_is_done_by_fewer(
        self, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[int] = []
        begun: list[str] = []
        begin = output.begin

        def note(storage: Storage, *arguments: Any) -> None:
            begun.append(storage.url)
            begin(storage, *arguments)

        monkeypatch.setattr(output, "begin", note)

        def hear(event: Event) -> None:
            if isinstance(event, FewerWorkers):
                told.append(event.workers)

        whole = tokpress.build(source, tokenizer="bytes", out=tmp_path / "whole", workers=1)
        options: dict[str, Any] = {"workers": 4, "memory": "700MB", "overwrite": True, "reporter": hear}
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "tight", **options)
        assert told
        assert begun == [whole.url, store.url]  # fewer go on with what there is, also with --overwrite
        assert store.manifest.run.workers == told[-1]
        assert store.manifest.run.peak_memory_bytes < 1.1 * 700e6
        assert stored(store.path) == stored(whole.path)

    def test_a_record_that_cannot_fit_stops_the_run_which_goes_on_with_more(self, tmp_path: Path, source: Path) -> None:
        with source.open("a") as file:
            file.write(json.dumps({"text": "a very long document " * 3_000_000}) + "\n")
        options = {"tokenizer": "bytes", "out": tmp_path / "store", "unit_size": "20MB"}
        with pytest.raises(NotEnoughMemory, match=r"long\.jsonl"):
            tokpress.build(source, workers=2, memory="700MB", **options)  # type: ignore[arg-type]
        store = tokpress.build(source, workers=2, memory="4GB", **options)  # type: ignore[arg-type]
        assert store.num_docs == 7
        assert store.manifest.totals.rejected == 0
        assert store.verify().ok
