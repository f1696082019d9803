"""A run as its events tell it; killed, silent and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

import tokpress
from tokpress.run import events
from tokpress.run.event_log import EventLog, read_events
from tokpress.view import RunFold, RunFollower, RunView


def view_of(path: Path) -> RunView:
    fold = RunFold()
    for event in read_events(path):
        fold.on(event)
    return fold.view()


def test_the_end_of_a_build(tmp_path: Path, bpe: Path, texts: list[str]) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts) + "no json\n")
    with EventLog(tmp_path / "events.jsonl") as log:
        store = tokpress.build(source, tokenizer=bpe, out=tmp_path / "store", reporter=log, unit_size=40_000)
    view = view_of(tmp_path / "events.jsonl")
    assert (view.state, view.runs, view.error) == ("finished", 1, "")
    assert (view.docs, view.tokens, view.rejects) == (store.num_docs, store.num_tokens, 1)
    assert view.rejects_by_reason == {"bad-json": 1}
    assert view.units_done == view.units == len(store.plan.units) > 1
    assert view.input_bytes == view.bytes_left == source.stat().st_size
    assert view.memory_budget
    assert view.memory_budget > 0
    assert view.examples[0].preview == "no json"
    status = RunFollower(events=tmp_path / "events.jsonl").look()
    assert status.run == view
    assert status.status is not None
    assert (status.status.sealed, status.written) == (True, False)


def test_of_many_points_every_second_is_kept() -> None:
    fold = RunFold()
    fold.on(events.Began(started_at=1.0, store="s", version="0"))
    fold.on(events.Started(bytes=10**6, units=1, workers=1, threads=1))
    for k in range(10_000):
        fold.on(events.Advanced(time=k / 10, worker=0, input_bytes=10, tokens=5))
    view = fold.view()
    assert len(view.points) <= 241
    assert view.points[-1].tokens == 50_000
    assert view.tokens_per_s == pytest.approx(50, rel=0.05)
    assert view.eta_seconds == pytest.approx((10**6 - 10**5) / 100, rel=0.05)


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = RunFollower(events=path)
    assert "cannot be read" in follower.look().problem
    began = events.encode(events.Began(started_at=5.0, store="nowhere", version="0"))
    path.write_bytes(began + b"\n" + began[:20])
    assert (follower.look().run.runs, follower.look().problem) == (1, "")
    with path.open("ab") as file:
        file.write(began[20:] + b"\n")
    assert follower.look().run.runs == 2
    path.write_bytes(began + b"\n")  # another file of the same name
    assert follower.look().run.runs == 1


def test_killed_and_continued_is_told_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    line = json.dumps({"text": "a few words that are many in the end " * 200}) + "\n"
    source.write_text(line * 12_000)
    path, store = tmp_path / "events.jsonl", tmp_path / "store"
    command = [
        sys.executable,
        "-m",
        "tokpress",
        "build",
        str(source),
        "--tokenizer",
        "bytes",
        "--out",
        str(store),
        "--quiet",
    ]
    command += ["--events", str(path), "--workers", "1", "--unit-size", "4MB", "--shard-size", "1MB"]
    environment = os.environ | {"PYTHONPATH": str(Path(tokpress.__file__).parent.parent)}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    follower = RunFollower(store=str(store), events=path)
    try:
        until = monotonic() + 120
        while (status := follower.look()).run.units_done < 2 and process.poll() is None and monotonic() < until:
            if status.run.state == "running":
                assert status.written is not False or process.poll() is not None
            sleep(0.05)
        assert process.poll() is None, "it was done before it could be killed"
        assert follower.look().written is True
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    killed = follower.look()
    assert (killed.run.state, killed.written) == ("running", False)  # it could not say so, but nobody holds the lock
    assert killed.status is not None
    assert not killed.status.sealed
    told = list(read_events(path))
    assert killed.run.tokens == sum(event.tokens for event in told if isinstance(event, events.Advanced))
    assert killed.run.units_done == sum(isinstance(event, events.UnitDone) for event in told)

    subprocess.run(command, env=environment, check=True, timeout=200)
    ended = follower.look()
    assert (ended.run.state, ended.run.runs, ended.written) == ("finished", 2, False)
    assert ended.run.docs_before > 0
    assert ended.run.units_done == ended.run.units
    assert RunFollower(store=str(store), events=path).look().run == ended.run  # a reader that came later sees the same
    assert tokpress.open(store).num_docs == 12_000
