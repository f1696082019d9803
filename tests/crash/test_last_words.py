"""Workers whose coordinator was killed end without a word, also while they write kept fields."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest


def _has_begun(events: Path) -> bool:
    return events.exists() and b'"advanced"' in events.read_bytes()


@pytest.mark.parametrize("seed", range(2))
def test_no_traceback_after_a_kill_with_kept_fields(tmp_path: Path, seed: int) -> None:
    record = json.dumps({"id": "7", "url": "http://x/7", "text": f"{seed} some words of a document " * 40}) + "\n"
    (tmp_path / "in.jsonl").write_text(record * 20_000)
    events = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "tokpress", "build", "in.jsonl", "--tokenizer", "bytes", "--keep", "id,url"]
    command += ["--workers", "2", "--unit-size", "4MB", "--out", "out", "--events", str(events), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "said").open("wb") as said:
        started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=said, env=environment)
        until = monotonic() + 120
        while not _has_begun(events):
            assert started.poll() is None, started.communicate()
            assert monotonic() < until
            sleep(0.01)
        started.send_signal(signal.SIGKILL)
        _, err = started.communicate(timeout=60)  # to the end of all that hold it: the workers are gone, too
    assert err.decode() == ""
    assert (tmp_path / "said").read_bytes() == b""
