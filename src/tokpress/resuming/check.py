"""Runs a trainer in one go, and once more killed and started again; the steps must be the same.

In: a command with `{out}` for the directory that it saves to. Out: a `ResumeReport`. The first run is whole. The second is
killed before a step; the same command then goes on. It must begin at a step that the killed run had reached, not later, and
be given from there on what the whole run was given.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tokpress.errors import TokpressError, UsageError
from tokpress.resuming.record import LOG_VARIABLE, STOP_VARIABLE

OUT = "{out}"
_INSIDE = Path(__file__).parent / "inside"


class ResumeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of each rank. `begins` is the step, counted from 0, that the second start trained on first."""

    steps: list[int]  # of the whole run
    killed_after: int
    begins: list[int]
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems


def check_resume(
    command: Sequence[str], *, stop_after: int, directory: str | os.PathLike[str] | None = None
) -> ResumeReport:
    """`directory`: where the two runs save to, as `whole` and `resumed`; by default one that is removed afterwards."""
    if not any(OUT in word for word in command):
        raise UsageError(
            f"the command has to say where it saves: python train.py --out {OUT}. Each run gets a directory of its own."
        )
    if stop_after < 1:
        raise UsageError(f"--stop-after {stop_after}: a run is killed after at least one step.")
    with ExitStack() as stack:
        place = Path(directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="tokpress-resume-")))
        whole = _run(command, place / "whole", place / "log-whole")
        first = _run(command, place / "resumed", place / "log-killed", {STOP_VARIABLE: str(stop_after)}, killed=True)
        second = _run(command, place / "resumed", place / "log-resumed")
        return compare(whole, first, second, stop_after)


def assert_resumes(command: Sequence[str], *, stop_after: int, directory: str | os.PathLike[str]) -> ResumeReport:
    """For tests: fails with what is wrong."""
    report = check_resume(command, stop_after=stop_after, directory=directory)
    assert report.ok, "\n".join(report.problems)
    return report


def _run(
    command: Sequence[str], out: Path, log: Path, more: Mapping[str, str] | None = None, *, killed: bool = False
) -> list[list[str]]:
    """What each rank was given."""
    out.mkdir(parents=True, exist_ok=True)
    log.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(_INSIDE), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, LOG_VARIABLE: str(log), **(more or {})}
    words = [word.replace(OUT, str(out)) for word in command]
    code = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL if killed else None, check=False).returncode
    logs = sorted(log.glob("*.log"), key=lambda file: int(file.stem))
    if not logs:
        raise TokpressError(
            f"{words[0]} ended with {code} and was given nothing: no module of torch was called in training mode. A trainer "
            "without torch calls tokpress.resuming.record.record_step(batch) in each step."
        )
    if killed and code == 0:
        raise TokpressError(
            "the run was over before it was to be killed. Give it more steps, or a smaller --stop-after."
        )
    if not killed and code != 0:
        raise TokpressError(f"{words[0]} ended with {code}. Mend that first.")
    return [file.read_text().split() for file in logs]


def compare(whole: list[list[str]], first: list[list[str]], second: list[list[str]], stop_after: int) -> ResumeReport:
    """Of each rank: the whole run, the killed one, and the one that went on."""
    problems, begins = [], []
    if not len(whole) == len(first) == len(second):
        problems.append(f"the runs have {len(whole)}, {len(first)} and {len(second)} ranks.")
    for rank, (all_steps, before, after) in enumerate(zip(whole, first, second, strict=False)):
        begin = len(all_steps) - len(after)
        begins.append(begin)
        where = f"rank {rank}: " if len(whole) > 1 else ""
        if before != all_steps[: len(before)]:
            step = _first_difference(before, all_steps)
            problems.append(
                f"{where}step {step} of the killed run is another one than of the whole run: it is not repeatable."
            )
        if begin > len(before):
            problems.append(
                f"{where}{begin - len(before)} steps are missing: killed after {len(before)}, it goes on at {begin}."
            )
        elif begin <= 0:
            problems.append(f"{where}it began anew: no checkpoint was found, or none was saved in {stop_after} steps.")
        if begin >= 0 and after != all_steps[begin:]:
            step = begin + _first_difference(after, all_steps[begin:])
            problems.append(f"{where}after the second start step {step} is given something else than in the whole run.")
    return ResumeReport(steps=[len(run) for run in whole], killed_after=stop_after, begins=begins, problems=problems)


def _first_difference(some: list[str], others: list[str]) -> int:
    return next((i for i, (one, other) in enumerate(zip(some, others, strict=False)) if one != other), len(some))
