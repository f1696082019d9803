"""Processes that stand for machines, forked from one that has loaded everything: a tenth of the time of a fresh one.

In: a command and its environment. Out: a process of its own, in a session of its own, that can be killed, frozen and told
to end. The worker lives inside it, so that one process is a whole machine. Its parent is a process without threads and
without a client of a bucket: that is what may be forked.

`python -m crash.forked` is that parent. It reads a line of JSON after the other and answers each with one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

TESTS = Path(__file__).parent.parent
VERSIONS: dict[str, str] = {}  # to find them takes a tenth of such a process's time


class Forked:
    """One of these processes, as `subprocess.Popen` would show it."""

    def __init__(self, server: ForkServer, pid: int, errors: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._errors = errors

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        while self.poll() is None:
            sleep(0.005)
            timeout -= 0.005
            if timeout < 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return b"", self._errors.read_bytes()


class ForkServer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = 0
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            text=True,
        )

    def start(self, arguments: list[str], environment: dict[str, str]) -> Forked:
        self._started += 1
        errors = self._directory / f"errors-{self._started}"
        pid = self.ask({"start": arguments, "environment": environment, "errors": str(errors)})
        return Forked(self, pid, errors)

    def ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    @property
    def cpu_seconds(self) -> float:
        """Of all that have ended."""
        return float(self.ask({"cpu": True}))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    load()
    for line in sys.stdin:
        question = json.loads(line)
        if "start" in question:
            answer: Any = os.fork()
            if answer == 0:
                run(question)
        elif "cpu" in question:
            answer = sum(os.times()[2:4])
        else:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), flush=True)


def load() -> None:
    """All that a run needs; a client of a bucket is made by whoever needs it."""
    import obstore.store  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import tokpress.cli.build
    import tokpress.engines.bytes
    import tokpress.run.clusters.inline
    import tokpress.run.coordinator
    import tokpress.sources.jsonl
    import tokpress.sources.parquet
    import tokpress.storage.fenced
    import tokpress.storage.guarded  # noqa: F401
    from tokpress.run.versions import output_versions

    VERSIONS.update(output_versions())


def run(question: dict[str, Any]) -> None:
    """The life of a forked process."""
    code = 70
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(question["errors"], os.O_WRONLY | os.O_CREAT), 2)
        os.environ.update(question["environment"])
        from tokpress import cli
        from tokpress.run import coordinator, shared
        from tokpress.run.clusters.inline import InlineCluster
        from tokpress.storage import requests

        requests._PID = os.getpid()
        vars(shared)["output_versions"] = lambda: VERSIONS
        vars(coordinator)["cluster_for"] = lambda job, storage, **_: InlineCluster(job, storage)
        sys.argv = ["tokpress", *question["start"]]
        code = cli._exit_code()
    except BaseException:  # noqa: BLE001 - whatever it is, it is for the test to see
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
