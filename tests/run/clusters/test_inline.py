"""The worker inside this process: no process is started, and the messages are those of any other worker."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from run.jobs import SETTINGS, begin, budget, inline, shard_files, write_texts
from tokpress.errors import TokpressError
from tokpress.run.events import WorkerView
from tokpress.run.messages import Advanced
from tokpress.run.tasks import remaining_tasks
from tokpress.storage.local import LocalStorage
from tokpress.store.receipts import read_receipts, unit_receipts


def ignore(views: list[WorkerView]) -> None: ...


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "a.jsonl", 100)


class TestInline:
    def test_runs_every_task_and_says_so(self, tmp_path: Path, source: Path) -> None:
        job, plan = begin(tmp_path / "store", [source], unit_bytes=1000)
        heard: list[tuple[int, Advanced]] = []
        with inline(job) as worker:
            prepared = worker.prepare()
            worker.configure(SETTINGS, budget(1))
            tasks = remaining_tasks(plan, {})
            done = list(worker.run(tasks, lambda number, advanced: heard.append((number, advanced)), ignore))
            assert worker.cluster.peak_bytes > 10**6
        assert prepared.info == plan.tokenizer
        assert [entry.unit for entry in done] == list(range(len(plan.units)))
        assert all(entry.cpu_seconds >= 0 for entry in done)
        assert {number for number, _ in heard} == {0}
        assert sum(advanced.docs for _, advanced in heard) == 100
        assert remaining_tasks(plan, read_receipts(LocalStorage(job.url))) == []

    def test_what_its_caller_holds_is_none_of_its_footprint(self, tmp_path: Path, source: Path) -> None:
        """Else a large program could not build within a small --memory."""
        job, _ = begin(tmp_path / "store", [source])
        ballast = np.ones(300_000_000, np.uint8)
        assert inline(job).prepare().footprint < len(ballast)

    def test_starts_nothing(self, tmp_path: Path, source: Path) -> None:
        job, plan = begin(tmp_path / "store", [source])
        before = psutil.Process().children(recursive=True)
        with inline(job) as worker:
            worker.prepare()
            worker.configure(SETTINGS, budget(1))
            for _ in worker.run(remaining_tasks(plan, {}), lambda number, advanced: None, ignore):
                assert psutil.Process().children(recursive=True) == before

    def test_a_task_is_begun_when_it_is_asked_for(self, tmp_path: Path, source: Path) -> None:
        job, plan = begin(tmp_path / "store", [source], unit_bytes=1000)
        worker = inline(job)
        worker.configure(SETTINGS, budget(1))
        results = worker.run(remaining_tasks(plan, {}), lambda number, advanced: None, ignore)
        assert read_receipts(LocalStorage(job.url)) == {}
        assert next(results).unit == 0  # which was synced while the next one was read
        assert {0} <= set(read_receipts(LocalStorage(job.url))) <= {0, 1}
        assert len(plan.units) > 2


def failing_fsync(monkeypatch: pytest.MonkeyPatch, failures: set[int] | None) -> list[int]:
    """The disk fails to keep what was written: these times (counted from 0), or always."""
    calls: list[int] = []
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        calls.append(descriptor)
        if failures is None or len(calls) - 1 in failures:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    return calls


class TestFailingDisk:
    @pytest.mark.parametrize("failure", [0, 2, 4, 5, 9, 14])
    def test_what_it_did_not_keep_is_written_again(
        self, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, failure: int
    ) -> None:
        stores = [tmp_path / "sound", tmp_path / "failing"]
        for store in stores:
            job, plan = begin(store, [source], shard_bytes=1000)
            worker = inline(job)
            worker.configure(SETTINGS, budget(1))
            with monkeypatch.context() as patch:
                if store.name == "failing":
                    failing_fsync(patch, {failure})
                heard: Counter[str] = Counter()

                def count(_: int, advanced: Advanced, heard: Counter[str] = heard) -> None:
                    heard.update({"docs": advanced.docs, "tokens": advanced.tokens})

                assert len(list(worker.run(remaining_tasks(plan, {}), count, ignore))) == 1
            tokens = sum(receipt.tokens for receipt in unit_receipts(LocalStorage(store), 0))
            assert heard == {"docs": 100, "tokens": tokens}  # once, however often it was written
        assert shard_files(stores[0]) == shard_files(stores[1])

    def test_one_that_never_keeps_anything_is_told(
        self, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, plan = begin(tmp_path / "store", [source])
        worker = inline(job)
        worker.configure(SETTINGS, budget(1))
        failing_fsync(monkeypatch, None)
        with pytest.raises(TokpressError, match="the disk failed to keep what was written"):
            list(worker.run(remaining_tasks(plan, {}), lambda number, advanced: None, ignore))
        assert read_receipts(LocalStorage(job.url)) == {}
