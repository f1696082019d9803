"""Processes that encode: they may die at any moment, and nobody waits for the dead."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pytest
from engines import samples

from tokpress.batches import TokenBatch, large_strings
from tokpress.config import TokenizerConfig
from tokpress.errors import TokenizerError, WorkerDied
from tokpress.live.base import Documents
from tokpress.live.processes import ProcessCrew
from tokpress.live.shared import SharedMemory
from tokpress.live.wire import get_texts, get_tokens, put_texts, put_tokens

pytestmark = pytest.mark.timeout(120)
PARTS = [large_strings([f"part {i} ", "", "word " * 20_000]) for i in range(6)]


@pytest.fixture
def crew() -> Iterator[ProcessCrew]:
    crew = ProcessCrew(samples.sample("mistral-v1-real").files, TokenizerConfig(spec=""), workers=2)
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return [samples.reference("mistral-v1-real").encode(part).ids.tolist() for part in PARTS]


def encode(crew: ProcessCrew, parts: Sequence[Documents]) -> list[list[int]]:
    return crew.encode(parts, lambda tokens: tokens.ids.tolist())


class Killer:
    """Kills processes of a crew while a call is under way: each `times` in a row, as soon as it is there."""

    def __init__(self, crew: ProcessCrew, times: int) -> None:
        self._crew, self._times = crew, times
        self.killed: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while len(self.killed) < self._times and not self._over.wait(0.01):
            for pid in self._crew.pids[:1]:
                if pid not in self.killed and len(self.killed) < self._times:
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class TestDeath:
    def test_in_the_middle_of_a_call_is_recovered_from(self, crew: ProcessCrew, expected: list[list[int]]) -> None:
        encode(crew, PARTS[:1])  # all of them are there
        with Killer(crew, times=1) as killer:
            assert encode(crew, PARTS) == expected
        assert len(killer.killed) == 1

    def test_between_two_calls_is_not_noticed(self, crew: ProcessCrew, expected: list[list[int]]) -> None:
        encode(crew, PARTS[:2])
        for pid in crew.pids:
            os.kill(pid, signal.SIGKILL)
        assert encode(crew, PARTS) == expected

    def test_again_and_again_is_an_error_and_then_it_works(self, crew: ProcessCrew, expected: list[list[int]]) -> None:
        """As if a text was their death."""
        with Killer(crew, times=100), pytest.raises(WorkerDied, match=r"texts 0 to 2 of this call .* \(signal 9\)"):
            encode(crew, PARTS[:1])
        assert encode(crew, PARTS) == expected

    def test_processes_that_cannot_start_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.executable", "/bin/false")
        crew = ProcessCrew(samples.sample("mistral-v1-real").files, TokenizerConfig(spec=""), workers=2)
        with pytest.raises(WorkerDied, match="exit code 1"):
            encode(crew, PARTS)
        crew.close()


def test_what_is_said_after_an_interrupt_is_not_taken_for_an_answer(
    crew: ProcessCrew, expected: list[list[int]]
) -> None:
    encode(crew, PARTS[:2])

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        with pytest.raises(KeyboardInterrupt):
            encode(crew, PARTS * 1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert encode(crew, PARTS[::-1]) == expected[::-1]


def test_an_error_of_the_engine_costs_no_process() -> None:
    crew = ProcessCrew(samples.sample("gpt2-ranks").files, TokenizerConfig(spec="", engine="tiktoken"), workers=2)
    encode(crew, [large_strings(["a"])] * 4)
    before = crew.pids
    with pytest.raises(TokenizerError, match="TokenizerError: tiktoken cannot encode"):
        encode(crew, [large_strings(["a"]), large_strings([" " * 1_000_000 + "x"]), large_strings(["b"])])
    assert encode(crew, [large_strings(["a"])]) == [samples.oracle("gpt2-ranks")("a")]
    assert crew.pids == before
    crew.close()


class TestSharedMemory:
    def test_grows_and_keeps_what_is_there(self) -> None:
        memory = SharedMemory()
        memory.room(10)[:5] = b"hello"
        assert memory.room(10**6)[:5] == b"hello"
        other = SharedMemory(os.dup(memory.descriptor))
        assert other.room(3)[:5] == b"hello"
        memory.close()
        assert other.room(2 * 10**6)[:5] == b"hello"
        other.close()

    def test_has_no_name(self) -> None:
        before = set(Path("/dev/shm").iterdir())
        memory = SharedMemory()
        memory.room(10**6)
        assert set(Path("/dev/shm").iterdir()) == before
        memory.close()

    @pytest.mark.parametrize("texts", [[], [""], ["a", "", "日本 🙂", "x" * 10_000]])
    def test_carries_texts_and_ids(self, texts: list[str]) -> None:
        memory = SharedMemory()
        for text in (large_strings(texts), large_strings(["before", *texts, "after"])[1 : 1 + len(texts)]):
            assert get_texts(memory, put_texts(memory, text)).to_pylist() == texts
            assert get_texts(memory, put_texts(memory, text)).type == pa.large_string()
        ids, ends = np.arange(7, dtype=np.uint32), np.array([0, 3, 3, 7])
        got = get_tokens(memory, put_tokens(memory, TokenBatch(ids, ends)))
        assert (got.ids.tolist(), got.ends.tolist()) == (ids.tolist(), ends.tolist())
        memory.close()
