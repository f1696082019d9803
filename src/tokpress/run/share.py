"""One machine's share of a run.

In: `I/N`, or `auto` in a Slurm array or a Kubernetes Indexed Job, and the sizes of all units. Out: the units that are
its own. Shares are fixed: they follow from the plan alone, so that machines need not talk to each other, and a task that
is started again has the same units as before.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokpress.errors import UsageError


@dataclass(frozen=True, slots=True)
class Share:
    """Number `index` of `count`, from 0."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_share(text: str, environment: Mapping[str, str]) -> Share:
    if text == "auto":
        return _from_scheduler(environment)
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise UsageError(f"--share {text!r} is no share. Give I/N with I from 0 to N-1, like 3/64, or auto.")
    return Share(int(found[1]), int(found[2]))


def _from_scheduler(environment: Mapping[str, str]) -> Share:
    """Slurm's arrays may begin with any number, but their numbers have to follow each other; Kubernetes counts from 0."""
    if (index := _number(environment, "SLURM_ARRAY_TASK_ID")) is not None:
        count = _needed(environment, "SLURM_ARRAY_TASK_COUNT")
        first = _number(environment, "SLURM_ARRAY_TASK_MIN") or 0
        step = _number(environment, "SLURM_ARRAY_TASK_STEP") or 1
        if (index - first) % step or not 0 <= (index - first) // step < count:
            raise UsageError(
                f"task {index} does not belong to an array of {count} tasks from {first} on. "
                "Name the share instead: --share I/N"
            )
        return Share((index - first) // step, count)
    if (index := _number(environment, "JOB_COMPLETION_INDEX")) is not None:
        count = _needed(environment, "JOB_COMPLETIONS")
        if not index < count:
            raise UsageError(
                f"JOB_COMPLETION_INDEX={index}, but JOB_COMPLETIONS={count}. Set it to the job's completions."
            )
        return Share(index, count)
    raise UsageError(
        "--share auto needs a Slurm array (SLURM_ARRAY_TASK_ID) or a Kubernetes Indexed Job (JOB_COMPLETION_INDEX), and "
        "neither is here. Name the share: --share I/N"
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,9}", text):
        raise UsageError(f"{name}={text!r} is no number. Name the share: --share I/N")
    return int(text)


def _needed(environment: Mapping[str, str], name: str) -> int:
    count = _number(environment, name)
    if not count:
        raise UsageError(
            f"--share auto needs {name}: into how many shares the run is cut. Set it, or give --share I/N."
        )
    return count


def units_of(share: Share, sizes: Sequence[int]) -> list[int]:
    """The largest unit that is left always goes to the share that has least: so all have about as much to read."""
    shares = [(0, index) for index in range(share.count)]
    mine = []
    for unit in sorted(range(len(sizes)), key=lambda unit: (-sizes[unit], unit)):
        size, index = heapq.heappop(shares)
        heapq.heappush(shares, (size + sizes[unit] + 1, index))
        if index == share.index:
            mine.append(unit)
    return sorted(mine)
