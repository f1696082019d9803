"""`--events FILE`: what happened can be read back, while it happens and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress
from tokpress.errors import InputError
from tokpress.run import events
from tokpress.run.event_log import EventLog, read_events
from tokpress.run.events import Advanced, Event

BEGAN = events.Began(started_at=1.0, store="tokens", version="0")
STOPPED = events.Stopped(time=9.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def written(path: Path, *told: Event) -> list[Event]:
    with EventLog(path) as log:
        for event in told:
            log.on(event)
    return list(read_events(path))


class TestWriting:
    def test_each_is_there_as_soon_as_it_was_told(self, path: Path) -> None:
        told: list[Event] = [BEGAN, STOPPED]
        with EventLog(path) as log:
            for count, event in enumerate(told, start=1):
                log.on(event)
                assert path.read_bytes().count(b"\n") == count
        assert list(read_events(path)) == [BEGAN, STOPPED]

    def test_another_run_appends(self, path: Path) -> None:
        written(path, BEGAN)
        assert written(path, BEGAN, STOPPED) == [BEGAN, BEGAN, STOPPED]

    def test_a_pipe_will_do(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
        with EventLog(tmp_path / "pipe") as log:
            log.on(STOPPED)
        assert reader.communicate(timeout=60)[0] == events.encode(STOPPED) + b"\n"

    def test_a_log_that_cannot_be_written_ends_no_run(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        log = EventLog("/dev/full")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store", reporter=log)
        log.close()
        assert store.num_docs == 1
        assert log.failure is not None
        assert log.failure.strerror == "No space left on device"


class TestThinning:
    def test_batches_of_a_worker_are_summed_up(self, path: Path) -> None:
        batches = [Advanced(time=k / 100, worker=0, docs=1, tokens=k) for k in range(200)]
        told = written(path, BEGAN, *batches, STOPPED)
        lines = [event for event in told if isinstance(event, Advanced)]
        assert [event.time for event in lines] == [0.0, 0.5, 1.0, 1.5, 1.99]
        assert sum(event.docs for event in lines) == 200
        assert sum(event.tokens for event in lines) == sum(range(200))
        assert told[-1] == STOPPED

    def test_each_worker_has_lines_of_its_own(self, path: Path) -> None:
        told = written(path, *[Advanced(time=0.1, worker=worker, docs=1) for worker in (0, 1, 2, 1)])
        assert [(event.worker, event.docs) for event in told if isinstance(event, Advanced)] == [
            *((0, 1), (1, 1), (2, 1)),
            (1, 1),
        ]

    def test_what_is_told_next_stands_after_all_that_happened_before(self, path: Path) -> None:
        unit = events.UnitDone(time=0.2, unit=0, docs=2, tokens=2, shards=[])
        batches = [Advanced(time=time, worker=0, docs=1) for time in (0.0, 0.1)]
        assert written(path, *batches, unit) == [*batches, unit]

    def test_a_second_run_of_one_log_is_not_thinned_by_the_first(self, path: Path) -> None:
        batches: list[Event] = [Advanced(time=100.0, worker=0, docs=1), BEGAN, Advanced(time=0.1, worker=0, docs=1)]
        with EventLog(path) as log:
            for event in batches:
                log.on(event)
            assert len(list(read_events(path))) == 3  # not only when it is closed


class TestReading:
    def test_a_last_line_that_was_cut_is_left_out(self, path: Path) -> None:
        written(path, BEGAN, STOPPED)
        whole = path.read_bytes()
        for cut in range(len(events.encode(BEGAN)) + 1, len(whole) - 1):
            path.write_bytes(whole[:cut])
            assert list(read_events(path)) == [BEGAN]

    def test_also_where_another_run_went_on_after_it(self, path: Path) -> None:
        written(path, BEGAN, STOPPED)
        path.write_bytes(path.read_bytes()[:-5])
        assert written(path, BEGAN, STOPPED) == [BEGAN, BEGAN, STOPPED]

    @pytest.mark.parametrize("data", [b"nonsense\n", b"nonsense\nmore\n", b"\xff\xfe\n", b"%s\nnonsense\n%s\n"])
    def test_any_other_line_is_an_error_that_names_it(self, path: Path, data: bytes) -> None:
        path.write_bytes(data.replace(b"%s", events.encode(STOPPED)))
        number = 2 if data.startswith(b"%s") else 1
        with pytest.raises(InputError, match=rf"events\.jsonl: line {number} is no event: .*--events"):
            list(read_events(path))

    def test_it_is_read_while_the_run_goes(self, path: Path) -> None:
        with EventLog(path) as log:
            log.on(BEGAN)
            reading = read_events(path)
            assert next(reading) == BEGAN
            log.on(STOPPED)
            assert next(reading, None) == STOPPED

    def test_an_empty_file_has_none(self, path: Path) -> None:
        path.touch()
        assert list(read_events(path)) == []

    def test_after_a_kill_all_that_was_told_is_there(self, tmp_path: Path, path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "a document"}\n' * 50)
        code = (
            "import os, signal, sys, tokpress\n"
            "from tokpress.run.event_log import EventLog\n"
            "def kill(event):\n"
            "    if isinstance(event, tokpress.events.UnitDone): os.kill(os.getpid(), signal.SIGKILL)\n"
            f"told = tokpress.events.join(EventLog({str(path)!r}), kill)\n"
            f"tokpress.build({str(tmp_path / 'a.jsonl')!r}, tokenizer='bytes', out={str(tmp_path / 'store')!r},\n"
            "    reporter=told, unit_size=400)\n"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        with EventLog(path) as log:
            tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", unit_size=400, reporter=log)
        told = list(tokpress.read_events(path))
        again = next(k for k, event in enumerate(told) if k and isinstance(event, events.Began))
        first, second = told[:again], told[again:]
        assert isinstance(first[-1], events.UnitDone)
        assert [type(event) for event in second if isinstance(event, events.Resuming)] == [events.Resuming]
        [finished] = [event for event in second if isinstance(event, events.Finished)]
        assert finished.docs == 50
