"""Runs a command in a process of its own and says how long it took, start-up included, and how much memory it held."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def run(command: Sequence[str], **environment: str) -> Measured:
    os.sync()  # what the run before left for the disk is not to be written at the expense of this one
    began = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ | environment)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = perf_counter() - began
    if status:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode(errors='replace')}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@contextmanager
def busy_process() -> Iterator[None]:
    """Beside a process that never waits."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def bring_to_memory(directory: Path) -> None:
    """The system may have dropped what was not read for a while."""
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()


def median(runs: Sequence[Measured]) -> Measured:
    """The run in the middle, by time."""
    return sorted(runs, key=lambda measured: measured.seconds)[len(runs) // 2]


def median_ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> float:
    """How much faster we are than they, over pairs that ran one after the other: noise that lasts hits both."""
    return statistics.median(their.seconds / our.seconds for our, their in zip(ours, theirs, strict=True))


def machine() -> str:
    model = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"
