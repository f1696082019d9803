"""Runs a training script and gathers what is known of it.

In: a command. Out: its exit code and what its processes left behind. The script runs as it would alone: its own input,
output and signals; only PYTHONPATH and three variables are added to its environment. Sampling begins with the first step
of an optimizer, in the process that makes it, so that neither a launcher nor imports are sampled.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec

from tokpress.diagnose.samples import Samples, read_samples
from tokpress.errors import UsageError
from tokpress.metering.meter import REPORT_VARIABLE
from tokpress.metering.report import StepReport, merge_ranks, read_report

_INSIDE = Path(__file__).parent / "inside"
_WATCH_VARIABLE = "TOKPRESS_WATCH"  # as inside/tokpress_watch.py has them
_TRACER_VARIABLE = "TOKPRESS_WATCH_TRACER"
_LOOK_SECONDS = 0.05
_SAMPLES_PER_SECOND = 100
_WRITE_SECONDS = 20.0  # for py-spy, after the script's end

INSTALL_PY_SPY = "pip install 'tokpress[diagnose]'"


class WatchedLine(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind from one line, or from all lines of other threads."""

    kind: str  # tokenize, data or sync
    calls: int
    seconds: float
    texts: int
    file: str = ""
    line: int = 0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What the watch in one process counted: in whole steps, or in all of its life if it made none."""

    pid: int
    rank: int
    steps: int
    seconds: float
    device: str
    missed: list[str]
    lines: list[WatchedLine]
    beside: list[WatchedLine]  # in other threads: no part of a step


class _Training(msgspec.Struct, frozen=True):
    """A process that has made its first step."""

    pid: int
    rank: int
    meter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    exit_code: int
    watched: list[Watched]
    meter: StepReport | None  # of all ranks
    samples: Samples | None
    notes: list[str]


def observe(command: Sequence[str], *, stdout: IO[Any] | int | None = None) -> Observed:
    """Runs the command to its end."""
    with TemporaryDirectory(prefix="tokpress-diagnose-") as directory:
        here = Path(directory)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_INSIDE), os.environ.get("PYTHONPATH")])),
            _WATCH_VARIABLE: directory,
            _TRACER_VARIABLE: str(os.getpid()),
            REPORT_VARIABLE: str(here / "meter.json"),
        }
        sampler = _Sampler(here)
        with _signals_passed_on() as running:
            try:
                script = subprocess.Popen(command, env=environment, stdout=stdout)
            except OSError as error:
                raise UsageError(
                    f"cannot run {command[0]!r}: {error.strerror}. Give the command as you would alone."
                ) from None
            running.append(script)
            while True:
                try:
                    exit_code = script.wait(_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    sampler.look()
            samples = sampler.finish()
        meters = [read_report(path.read_bytes()) for path in sorted(here.glob("meter.json*"))]
        watched = [msgspec.json.decode(path.read_bytes(), type=Watched) for path in sorted(here.glob("watch-*.json"))]
        return Observed(
            exit_code=exit_code if exit_code >= 0 else 128 - exit_code,  # as a shell says it
            watched=watched,
            meter=merge_ranks(meters) if meters else None,
            samples=samples,
            notes=sampler.notes,
        )


@contextmanager
def _signals_passed_on() -> Iterator[list[subprocess.Popen[Any]]]:
    """Ctrl-C is sent to both of us by the terminal: the script ends as it likes, and is then reported on. What a scheduler
    sends to us alone is passed on to what runs."""
    running: list[subprocess.Popen[Any]] = []

    def pass_on(number: int, _: object) -> None:
        for script in running:
            script.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        yield running
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _Sampler:
    """py-spy, once there is something to sample. A script with a meter needs none."""

    directory: Path
    notes: list[str] = field(default_factory=list)
    _spy: subprocess.Popen[str] | None = None
    _decided: bool = False

    def look(self) -> None:
        if self._decided:
            return
        for path in self.directory.glob("training-*.json"):
            training = msgspec.json.decode(path.read_bytes(), type=_Training)
            if training.rank == 0:
                self._decided = True
                if not training.meter:
                    self._start(training.pid)
                return

    def _start(self, pid: int) -> None:
        program = _py_spy()
        if program is None:
            self.notes.append(
                "py-spy is not installed, so what is neither tokenizing nor data nor synchronisation is not split further. "
                f"Install it: {INSTALL_PY_SPY}"
            )
            return
        options = ["--idle", "--threads", "--full-filenames", "--format", "raw", "--rate", str(_SAMPLES_PER_SECOND)]
        self._spy = subprocess.Popen(
            [program, "record", "--pid", str(pid), *options, "--output", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the script; py-spy ends with it
        )

    @property
    def _file(self) -> Path:
        return self.directory / "samples.txt"

    def finish(self) -> Samples | None:
        """After the script's end, with which py-spy ends, too."""
        if self._spy is None:
            return None
        try:
            _, said = self._spy.communicate(timeout=_WRITE_SECONDS)
        except subprocess.TimeoutExpired:
            self._spy.kill()
            _, said = self._spy.communicate()
        if self._file.is_file():
            return read_samples(self._file.read_text("utf-8", errors="replace"))
        reason = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        self.notes.append(f"py-spy took no samples ({reason.strip()}).")
        return None


def _py_spy() -> str | None:
    """Of the environment that tokpress is installed in, activated or not."""
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
