"""Batches made ahead: in order, no more than asked for, and whatever goes wrong is heard of."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.loader.batches.prefetch import Copy, InFlight, Prefetcher, copier_to
from tokpress.loader.memory.buffers import BufferPool

from .conftest import SEQ_LEN

INT64 = np.dtype(np.int64)


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tokpress-batch")]


@pytest.mark.parametrize("threads", [0, 1, 4])
class TestPrefetcher:
    def test_keeps_the_order(self, threads: int) -> None:
        made = Prefetcher(lambda k: k * k, range(200), threads=threads, ahead=7)
        assert list(made) == [k * k for k in range(200)]
        made.close()

    def test_raises_what_was_raised_in_its_place(self, threads: int) -> None:
        def make(k: int) -> int:
            if k == 3:
                raise StoreError("shard 3 is missing")
            return k

        made = Prefetcher(make, range(10), threads=threads, ahead=4)
        assert [next(made) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(StoreError, match="shard 3"):
            next(made)
        made.close()

    def test_ends_its_threads(self, threads: int) -> None:
        made = Prefetcher(lambda k: k, iter(int, 1), threads=threads, ahead=4)
        next(made)
        assert len(running()) <= threads
        made.close()
        assert running() == []
        assert list(made) == []


def test_what_was_not_begun_when_it_is_closed_is_never_made() -> None:
    made, second, go_on = list[int](), threading.Event(), threading.Event()

    def make(k: int) -> int:
        made.append(k)
        if k == 1:
            second.set()
            assert go_on.wait(10)
        return k

    ahead = Prefetcher(make, range(100), threads=1, ahead=8)
    assert next(ahead) == 0
    assert second.wait(10)  # it is busy with 1; 2 to 8 wait for their turn
    threading.Timer(0.2, go_on.set).start()
    ahead.close()
    assert made == [0, 1]


def test_works_ahead_but_not_further_than_asked() -> None:
    begun: list[int] = []
    enough = threading.Event()

    def make(k: int) -> int:
        begun.append(k)
        if k == 3:
            enough.set()
        return k

    made = Prefetcher(make, range(100), threads=1, ahead=3)
    assert next(made) == 0
    assert enough.wait(60)  # without being asked for 1, 2 and 3
    made.close()
    assert begun == [0, 1, 2, 3]


class TestEndOfTheLoop:
    def test_no_thread_is_left_after_a_break(self, data: tokpress.PretokenizedDataset) -> None:
        loader = tokpress.Loader(data, batch_size=2, threads=3)
        for _ in loader:
            break
        gc.collect()
        assert running() == []

    def test_no_thread_is_left_at_the_end(self, data: tokpress.PretokenizedDataset) -> None:
        assert list(tokpress.Loader(data, batch_size=2, threads=3))
        assert running() == []

    @pytest.mark.parametrize("output", ["numpy", "torch"])
    @pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "import os; os._exit(0)"])
    def test_a_process_ends_in_the_middle(self, store: tokpress.Store, ending: str, output: str) -> None:
        code = (
            "import tokpress, math\n"
            f"store = tokpress.open({str(store.path)!r})\n"
            f"data = tokpress.PretokenizedDataset(store, seq_len=16, output={output!r})\n"
            "loader = tokpress.Loader(data, batch_size=2, threads=4, max_epochs=math.inf)\n"
            "batches = iter(loader)\n"
            f"next(batches)\n{ending}\n"
        )
        ended = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stderr=subprocess.PIPE, text=True)
        assert ended.stderr == ""

    def test_damage_reaches_the_loop_through_threads(self, store: tokpress.Store, tmp_path: Path) -> None:
        import shutil

        copy = shutil.copytree(store.path, tmp_path / "copy")
        data = tokpress.PretokenizedDataset(copy, seq_len=SEQ_LEN, output="numpy")
        victim = sorted((copy / "shards").glob("*.bin"))[-2]
        victim.unlink()
        with pytest.raises(StoreError, match=f"{victim.name} is missing"):
            for _ in tokpress.Loader(data, batch_size=2, threads=4):
                pass
        gc.collect()
        assert running() == []


class TestBuffers:
    def test_are_used_again_once_nobody_looks(self) -> None:
        pool = BufferPool()
        address = pool("input_ids", (4, 8), INT64).ctypes.data
        assert pool("labels", (8, 4), INT64).ctypes.data == address
        assert pool.created == 1

    @pytest.mark.parametrize(
        "look",
        [
            lambda array: array,
            lambda array: array[1],
            lambda array: array[1:3, ::2][0],
            lambda array: array.reshape(-1)[3:],
            lambda array: memoryview(array),
            torch.from_numpy,
            lambda array: torch.from_numpy(array)[2].view(-1)[1:],
        ],
    )
    def test_are_not_while_somebody_does(self, look: Any) -> None:
        pool = BufferPool()
        array = pool("input_ids", (4, 8), INT64)
        array[...] = 7
        view = look(array)
        del array
        gc.collect()
        other = pool("input_ids", (4, 8), INT64)
        other[...] = 9
        assert set(np.asarray(view).reshape(-1).tolist()) == {7}
        assert pool.created == 2
        del view
        gc.collect()
        pool("input_ids", (4, 8), INT64)
        assert pool.created == 2

    def test_keep_a_few_only(self) -> None:
        pool = BufferPool()
        many = [pool("input_ids", (4,), INT64) for _ in range(100)]
        del many
        gc.collect()
        assert sum(map(len, pool._free.values())) <= 16


class SlowEvent:
    """A copy that is done when the test says so."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done


class SlowCopier:
    """A device that has not read its source yet; copies when asked for at the end, as a GPU's stream does."""

    def __init__(self) -> None:
        self.events: list[SlowEvent] = []

    def start(self, batch: dict[str, Any]) -> Copy:
        self.events.append(SlowEvent())
        return Copy(dict(batch), batch, self.events[-1])

    def receive(self, copy: Copy) -> dict[str, Any]:
        return dict.fromkeys(copy.batch, "on the device")


def test_memory_is_not_used_again_before_its_copy_is_done() -> None:
    pool, copier = BufferPool(), SlowCopier()
    arrivals = InFlight(copier)
    for made in range(1, 6):
        arrivals.receive(copier.start({"input_ids": pool("input_ids", (4, 8), INT64)}))
        gc.collect()
        assert pool.created == made  # every copy so far is still under way
    for event in copier.events[:-1]:
        event.done = True
    arrivals.receive(copier.start({"input_ids": pool("input_ids", (4, 8), INT64)}))
    gc.collect()
    for _ in range(4):
        arrivals.receive(copier.start({"input_ids": pool("input_ids", (4, 8), INT64)}))
    assert pool.created == 6


def test_only_tensors_are_copied_to_a_device() -> None:
    assert copier_to("cpu", as_tensors=False) is None
    with pytest.raises(UsageError, match=r"device='cuda' needs tensors"):
        copier_to("cuda", as_tensors=False)
    with pytest.raises((RuntimeError, AssertionError)) if not torch.cuda.is_available() else nullcontext():
        copier_to("cuda", as_tensors=True)
