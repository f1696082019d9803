"""Large records take turns, and what can never fit is said at once."""

from __future__ import annotations

import json
import os
import queue
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
from tokpress.errors import NotEnoughMemory
from tokpress.run.budget import plan_budget
from tokpress.run.events import Event, FewerWorkers
from tokpress.run.gate import Gate, Room
from tokpress.sizes import parse_size
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


def _tell(process: subprocess.Popen[bytes], inside: queue.Queue[int], number: int) -> None:
    assert process.stdout is not None
    if process.stdout.readline():
        inside.put(number)


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

    def test_who_has_left_waits_again(
        self, gate: Callable[[], Gate], waiting: Callable[[Gate, int], threading.Event]
    ) -> None:
        first, second = gate(), gate()
        for need in (50, 500):
            first.wait_for(need, "a.jsonl")
            first.leave()
            second.wait_for(500, "a.jsonl")
            inside = waiting(first, need)
            assert not inside.wait(0.1)
            second.leave()
            assert inside.wait(10)
            first.leave()

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

    def test_without_proc_a_lock_belongs_to_a_process(self, tmp_path: Path) -> None:
        """As on macOS: the other process waits for this one, and this one may grow."""
        code = f"""
import os
from pathlib import Path
from tokpress.run import gate
gate._DESCRIPTORS = Path("/no/such/directory")
lock = os.open({str(tmp_path / "lock")!r}, os.O_RDWR | os.O_CREAT)
own = gate.Gate(gate.Room(ordinary=10, share=100, most=1000, budget=5000), lock)
own.wait_for(50, "a")
own.wait_for(500, "a")
print("inside", flush=True)
input()
own.leave()
input()
"""
        started = [
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
            for _ in range(2)
        ]
        inside = queue.Queue[int]()
        for number, process in enumerate(started):
            threading.Thread(target=_tell, args=(process, inside, number)).start()
        first = inside.get(timeout=60)
        with pytest.raises(queue.Empty):
            inside.get(timeout=0.5)
        begun = started[first].stdin
        assert begun is not None
        begun.write(b"\n")
        begun.flush()
        assert inside.get(timeout=60) == 1 - first
        for process in started:
            process.kill()
            process.communicate()

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

    def test_what_the_caller_holds_is_not_the_runs(self, tmp_path: Path) -> None:
        """A notebook with data in it: the run is charged for what a small process would be."""
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
        code = """
import sys, tokpress
held = bytearray(int(sys.argv[3]))
held[::4096] = held[::4096].replace(b"\\0", b"\\1")  # in memory, page by page
store = tokpress.build(sys.argv[1], tokenizer="bytes", out=sys.argv[2], workers=2)
print(store.manifest.run.peak_memory_bytes)
"""
        peaks = [
            int(
                subprocess.run(
                    [sys.executable, "-c", code, tmp_path / "a.jsonl", tmp_path / f"held-{held}", str(held)],
                    capture_output=True,
                    check=True,
                ).stdout
            )
            for held in (0, 300_000_000)
        ]
        assert abs(peaks[1] - peaks[0]) < 40_000_000

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
