"""Worker processes: fresh interpreters that write the same bytes however many they are, may die at any moment, and are
gone when the run is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conftest import stored

import tokpress
from run.jobs import SETTINGS, Workers, begin, budget, in_processes, inline, shard_files, write_texts
from tokpress.config import TokenizerConfig
from tokpress.engines.load import load_files
from tokpress.errors import InputError, TokpressError
from tokpress.interpreter import start_python
from tokpress.records import MANIFEST, Plan
from tokpress.run.clusters import processes as module
from tokpress.run.clusters.processes import ProcessCluster
from tokpress.run.clusters.serve import SYNC_FAILED
from tokpress.run.events import WorkerView
from tokpress.run.messages import Advanced, Done, Job, Prepare, Settings
from tokpress.run.tasks import remaining_tasks
from tokpress.run.worker import Worker
from tokpress.storage.local import LocalStorage
from tokpress.store.receipts import read_receipts, unit_receipts

pytestmark = pytest.mark.timeout(120)
Heard = Callable[[int, Advanced], None]
# A worker as it is, on a disk that fails once to keep what was written.
ON_A_FAILING_DISK = """
import errno
import os

fsync = os.fsync


def fail_once(descriptor):
    try:
        os.close(os.open(os.environ["TOKPRESS_TEST_FAILED_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return fsync(descriptor)
    raise OSError(errno.EIO, "Input/output error")


if __name__ == "__main__":
    from tokpress.run.clusters.serve import main

    os.fsync = fail_once
    main()
"""


def nobody(number: int, advanced: Advanced) -> None: ...


def unwatched(views: list[WorkerView]) -> None: ...


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_texts(tmp_path_factory.mktemp("local") / "a.jsonl", 300)
    path.write_text(path.read_text() + "not json\n{}\n")
    return path


def new_store(directory: Path, source: Path) -> tuple[Job, Plan]:
    return begin(directory, [source], unit_bytes=2000, shard_bytes=1000)


@pytest.fixture
def begun(tmp_path: Path, source: Path) -> tuple[Job, Plan]:
    return new_store(tmp_path / "store", source)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, source: Path) -> dict[str, bytes]:
    """What a run in one process writes."""
    job, plan = new_store(tmp_path_factory.mktemp("expected") / "store", source)
    worker = inline(job)
    worker.configure(SETTINGS, budget(1))
    assert len(list(worker.run(remaining_tasks(plan, {}), nobody, unwatched))) == len(plan.units) > 3
    return shard_files(Path(job.url))


def run_all(workers: Workers, begun: tuple[Job, Plan], heard: Heard = nobody, memory: int = 10**12) -> list[Done]:
    job, plan = begun
    workers.configure(SETTINGS, budget(workers.scheduler.count, memory))
    return list(workers.run(remaining_tasks(plan, read_receipts(LocalStorage(job.url))), heard, unwatched))


def processes(workers: Workers) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in cluster_of(workers).pids.values()]


def kill(workers: Workers, number: int) -> None:
    os.kill(cluster_of(workers).pids[number], signal.SIGKILL)


def cluster_of(workers: Workers) -> ProcessCluster:
    assert isinstance(workers.cluster, ProcessCluster)
    return workers.cluster


class TestRun:
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_the_files_are_the_same_however_many_they_are(
        self, begun: tuple[Job, Plan], expected: dict[str, bytes], count: int
    ) -> None:
        job, plan = begun
        docs: Counter[int] = Counter()
        with in_processes(job, count, doc_timeout=60) as workers:
            done = run_all(workers, begun, lambda number, advanced: docs.update({number: advanced.docs}))
            assert workers.cluster.peak_bytes > 10**7
        assert sorted(entry.unit for entry in done) == list(range(len(plan.units)))
        assert (docs.total(), set(docs) <= set(range(count))) == (300, True)
        assert shard_files(Path(job.url)) == expected

    def test_they_are_fresh_interpreters(self, begun: tuple[Job, Plan]) -> None:
        """Never a fork of a process that has threads."""
        with in_processes(begun[0], 1, doc_timeout=60) as workers:
            workers.prepare()  # before its answer, the process may not have become another program yet
            assert "tokpress.run.clusters.serve" in " ".join(processes(workers)[0].cmdline())

    def test_they_stay_where_they_are_pinned(self, begun: tuple[Job, Plan]) -> None:
        cpu = max(os.sched_getaffinity(0))
        with in_processes(begun[0], 1, doc_timeout=60, pin=[{cpu}]) as workers:
            workers.prepare()
            assert processes(workers)[0].cpu_affinity() == [cpu]

    def test_each_is_pinned_to_the_next_place(self, begun: tuple[Job, Plan]) -> None:
        first, *others = sorted(os.sched_getaffinity(0))
        if not others:
            pytest.skip("this machine has one CPU")
        with in_processes(begun[0], 3, doc_timeout=60, pin=[{first}, {others[-1]}]) as workers:
            workers.prepare()
            placed = [process.cpu_affinity() for process in processes(workers)]
        assert placed == [[first], [others[-1]], [first]]

    def test_a_budget_for_fewer_keeps_fewer(self, begun: tuple[Job, Plan], expected: dict[str, bytes]) -> None:
        job, plan = begun
        with in_processes(job, 3, doc_timeout=60) as workers:
            started = processes(workers)
            prepared = workers.prepare()
            assert prepared.info == plan.tokenizer
            workers.configure(SETTINGS, budget(1))
            assert [process.is_running() for process in started] == [True, False, False]
            list(workers.run(remaining_tasks(plan, {}), nobody, unwatched))
        assert shard_files(Path(job.url)) == expected

    def test_they_may_be_given_units_again_and_again(self, begun: tuple[Job, Plan], expected: dict[str, bytes]) -> None:
        """As with --limit: the next unit is given when the one before is on the disk."""
        job, plan = begun
        with in_processes(job, 1, doc_timeout=60) as workers:
            workers.configure(SETTINGS, budget(1))
            for task in remaining_tasks(plan, {}):
                assert [done.unit for done in workers.run([task], nobody, unwatched)] == [task.unit]
        assert shard_files(Path(job.url)) == expected

    def test_a_script_needs_no_main_guard(self, source: Path, tmp_path: Path) -> None:
        """And what it does is done once: it is not imported again by the workers."""
        script = tmp_path / "script.py"
        script.write_text(
            "import sys, tokpress\n"
            "print('once', flush=True)\n"
            "store = tokpress.build(sys.argv[1], tokenizer='bytes', out=sys.argv[2], workers=2, max_rejects='100%')\n"
            "print(store.num_docs, store.manifest.run.workers)\n"
        )
        command = [sys.executable, str(script), str(source), str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stderr, done.stdout.split()[:2]) == (0, "", ["once", "300"])


class TestProof:
    """The workers share it; what they find together is what one finds alone."""

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_is_the_same_for_any_number(self, begun: tuple[Job, Plan], bpe: Path, count: int) -> None:
        config = TokenizerConfig(spec=str(bpe))
        job = msgspec.structs.replace(
            begun[0], config=msgspec.structs.replace(begun[0].config, tokenizer=config), files=load_files(config)
        )
        alone = Worker(job, LocalStorage(job.url)).prepare(Prepare())
        with in_processes(job, count, doc_timeout=60) as workers:
            prepared = workers.prepare()
        assert prepared.parity == alone.parity
        assert (prepared.parity.outcome, prepared.parity.docs > 100) == ("equal", True)
        assert prepared.first_document == alone.first_document

    def test_goes_on_if_one_of_them_dies(self, begun: tuple[Job, Plan]) -> None:
        with in_processes(begun[0], 2, doc_timeout=60) as workers:
            kill(workers, 1)
            assert workers.prepare().info == begun[1].tokenizer


class TestDeath:
    def test_a_worker_killed_at_work_is_replaced_and_the_files_are_the_same(
        self, begun: tuple[Job, Plan], expected: dict[str, bytes]
    ) -> None:
        killed: list[int] = []

        def kill_three(number: int, advanced: Advanced) -> None:
            if len(killed) < 3 and advanced.docs > 0:  # else what a dead one lost is taken back
                killed.append(number)
                kill(workers, number)

        with in_processes(begun[0], 2, doc_timeout=60) as workers:
            before = processes(workers)
            done = run_all(workers, begun, kill_three)
            assert set(processes(workers)) != set(before)
        assert len(killed) == 3
        assert sorted(entry.unit for entry in done) == list(range(len(begun[1].units)))
        assert shard_files(Path(begun[0].url)) == expected

    def test_what_is_done_twice_is_counted_once(self, tmp_path: Path, source: Path) -> None:
        """Whatever workers said and took to their graves, the sum of what was heard is what is in the store."""
        begun = begin(tmp_path / "store", [source], shard_bytes=1000)
        heard = Advanced()
        deaths: list[int] = []  # how many shards there were

        def kill_now_and_then(number: int, advanced: Advanced) -> None:
            nonlocal heard
            heard += advanced
            shards = len(unit_receipts(LocalStorage(begun[0].url), 0))
            if advanced.docs > 0 and len(deaths) < 2 and shards > 2 * len(deaths):
                deaths.append(shards)
                kill(workers, number)

        with in_processes(begun[0], 1, doc_timeout=60) as workers:
            run_all(workers, begun, kill_now_and_then)
        receipts = unit_receipts(LocalStorage(begun[0].url), 0)
        assert len(deaths) == 2
        assert (heard.docs, heard.rejects) == (300, 2)
        assert heard.tokens == sum(receipt.tokens for receipt in receipts)

    def test_so_is_one_killed_before_it_had_anything_to_do(
        self, begun: tuple[Job, Plan], expected: dict[str, bytes]
    ) -> None:
        with in_processes(begun[0], 2, doc_timeout=60) as workers:
            for number in (0, 1):
                process = psutil.Process(cluster_of(workers).pids[number])
                kill(workers, number)
                process.wait(30)
            run_all(workers, begun)
        assert shard_files(Path(begun[0].url)) == expected

    def test_so_is_one_whose_disk_failed_to_keep_what_was_written(
        self, begun: tuple[Job, Plan], expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not known what of a file is on the disk then: a fresh worker writes it again."""
        (tmp_path / "on_a_failing_disk.py").write_text(ON_A_FAILING_DISK)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("TOKPRESS_TEST_FAILED_ONCE", str(tmp_path / "failed"))
        monkeypatch.setattr(module, "start_python", lambda _, *fd, **how: start_python("on_a_failing_disk", *fd, **how))
        with in_processes(begun[0], 1, doc_timeout=60) as workers:
            first = cluster_of(workers)._processes[0].process
            run_all(workers, begun)
        assert first.returncode == SYNC_FAILED
        assert shard_files(Path(begun[0].url)) == expected

    def test_so_is_the_one_that_prepares(self, begun: tuple[Job, Plan]) -> None:
        with in_processes(begun[0], 1, doc_timeout=60) as workers:
            kill(workers, 0)
            assert workers.prepare().info == begun[1].tokenizer

    def test_a_tokenizer_that_always_kills_is_told(
        self, begun: tuple[Job, Plan], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spawn = ProcessCluster._spawn

        def stillborn(cluster: ProcessCluster) -> Any:
            worker = spawn(cluster)
            worker.process.kill()
            return worker

        monkeypatch.setattr(ProcessCluster, "_spawn", stillborn)
        with (
            in_processes(begun[0], 1, doc_timeout=60) as workers,
            pytest.raises(TokpressError, match=r"a worker dies each time it loads the tokenizer.*SIGKILL"),
        ):
            workers.prepare()

    def test_a_run_that_never_fits_its_memory_ends_with_an_error(
        self, begun: tuple[Job, Plan], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tokpress.run.quarantine._DEATHS_WITHOUT_PROGRESS", 2)
        with in_processes(begun[0], 1, doc_timeout=60) as workers, pytest.raises(TokpressError, match="--memory"):
            run_all(workers, begun, memory=1)
        assert read_receipts(LocalStorage(begun[0].url)).keys() <= {0}


class TestErrors:
    def test_an_input_that_vanished_is_the_same_error_as_without_processes(self, tmp_path: Path) -> None:
        source = write_texts(tmp_path / "b.jsonl", 10)
        begun = begin(tmp_path / "store", [source])
        source.unlink()
        job, plan = begun
        worker = inline(job)
        worker.configure(SETTINGS, budget(1))
        with pytest.raises(InputError) as here:
            list(worker.run(remaining_tasks(plan, {}), nobody, unwatched))
        with in_processes(job, 1, doc_timeout=60) as workers, pytest.raises(InputError) as elsewhere:
            run_all(workers, begun)
        assert str(elsewhere.value) == str(here.value)
        assert str(source) in str(elsewhere.value)

    def test_so_is_a_store_that_cannot_be_written(self, begun: tuple[Job, Plan]) -> None:
        shards = Path(begun[0].url) / "shards"
        shards.rmdir()
        with in_processes(begun[0], 2, doc_timeout=60) as workers, pytest.raises(FileNotFoundError) as raised:
            run_all(workers, begun)
        assert str(raised.value.filename).startswith(str(shards))

    def test_so_is_an_engine_that_there_is_not(self, begun: tuple[Job, Plan]) -> None:
        job, plan = begun
        with in_processes(job, 1, doc_timeout=60) as workers:
            workers.configure(Settings(engine="gigatoken", batch_bytes=100, threads=1), budget(1))
            with pytest.raises(TokpressError):
                list(workers.run(remaining_tasks(plan, {}), nobody, unwatched))


class TestNothingLeft:
    """After the run there is no process, whatever happened."""

    @pytest.fixture(autouse=True)
    def none_left(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
        started: list[int] = []
        spawn = ProcessCluster._spawn

        def noted(cluster: ProcessCluster) -> Any:
            worker = spawn(cluster)
            started.append(worker.process.pid)
            return worker

        monkeypatch.setattr(ProcessCluster, "_spawn", noted)
        yield started
        assert started
        assert not [pid for pid in started if psutil.pid_exists(pid)]

    def test_after_success(self, begun: tuple[Job, Plan]) -> None:
        with in_processes(begun[0], 2, doc_timeout=60) as workers:
            run_all(workers, begun)

    def test_after_no_run_at_all(self, begun: tuple[Job, Plan]) -> None:
        with in_processes(begun[0], 2, doc_timeout=60):
            pass

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_after_an_error_in_the_middle(self, begun: tuple[Job, Plan], error: type[BaseException]) -> None:
        def fail(number: int, advanced: Advanced) -> None:
            raise error

        with pytest.raises(error), in_processes(begun[0], 2, doc_timeout=60) as workers:
            run_all(workers, begun, fail)

    def test_after_a_worker_s_error(self, tmp_path: Path) -> None:
        source = write_texts(tmp_path / "b.jsonl", 10)
        begun = begin(tmp_path / "store", [source])
        source.unlink()
        with pytest.raises(InputError), in_processes(begun[0], 2, doc_timeout=60) as workers:
            run_all(workers, begun)

    def test_they_are_given_time_to_end(self, begun: tuple[Job, Plan]) -> None:
        """So that they remove what they have written of a file, and give up what they have sent of one to a bucket."""
        started: list[subprocess.Popen[bytes]] = []

        def interrupt(number: int, advanced: Advanced) -> None:
            started.extend(worker.process for worker in cluster_of(workers)._processes.values())
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), in_processes(begun[0], 1, doc_timeout=60) as workers:
            run_all(workers, begun, interrupt)
        assert [process.returncode for process in started] == [0]

    def test_after_one_that_does_not_listen(self, begun: tuple[Job, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_STOP_SECONDS", 0.1)

        def interrupted(workers: Workers) -> None:
            processes(workers)[0].suspend()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), in_processes(begun[0], 1, doc_timeout=60) as workers:
            interrupted(workers)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("large") / "a.jsonl", 1000)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, large: Path) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("uninterrupted") / "store"
    store = tokpress.build(large, tokenizer="bytes", out=out, unit_size="10kB", shard_size=100, workers=1)
    assert len(store.manifest.splits["train"].shards) > 200
    return stored(store.path)


class TestCommand:
    """The whole command, interrupted from outside."""

    def arguments(self, source: Path, out: Path) -> Sequence[str]:
        """Hundreds of tiny shards: the run is still at work when it is interrupted."""
        sizes = ["--unit-size", "10kB", "--shard-size", "100", "--workers", "2"]
        command = [sys.executable, "-m", "tokpress", "build", str(source), "--tokenizer", "bytes"]
        return [*command, "--out", str(out), *sizes]

    def interrupt(self, source: Path, out: Path, *, send: signal.Signals) -> tuple[int, str]:
        """Sends a signal to the coordinator when the first shard is there; waits until all its processes are gone."""
        process = subprocess.Popen(
            self.arguments(source, out), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while not list((out / "shards").glob("*.json")) and process.poll() is None:
            os.sched_yield()
        family = psutil.Process(process.pid).children(recursive=True)
        assert sum("tokpress.run.clusters.serve" in " ".join(child.cmdline()) for child in family) == 2
        process.send_signal(send)
        _, said = process.communicate(timeout=30)
        _, alive = psutil.wait_procs(family, timeout=30)
        assert alive == []
        return process.returncode, said

    @pytest.mark.parametrize("send", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_leaves_no_process_and_a_store_that_is_gone_on_with(
        self, tmp_path: Path, large: Path, uninterrupted: dict[str, bytes], send: signal.Signals
    ) -> None:
        out = tmp_path / "store"
        code, said = self.interrupt(large, out, send=send)
        assert code == (-signal.SIGKILL if send == signal.SIGKILL else 130), said
        assert not (out / MANIFEST).exists()
        assert "Traceback" not in said
        done = len(list((out / "shards").glob("*.json")))
        assert done >= 1
        finished = subprocess.run(self.arguments(large, out), capture_output=True, text=True, timeout=100)
        assert finished.returncode == 0, finished.stderr
        assert stored(out) == uninterrupted
