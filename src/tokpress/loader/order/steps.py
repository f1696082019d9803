"""Steps and samples: which samples of the global order make up a step, and which of them a rank takes.

In: a batch size, the number of ranks, what was delivered so far. Out: ranges of samples. A step of all ranks together
takes the next `batch_size * world_size` samples; rank r takes the r-th `batch_size` of them. So which samples a step has
depends on the product alone, and the order of samples on neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokpress.arguments import whole_number
from tokpress.batches import Int64s
from tokpress.errors import UsageError
from tokpress.loader.state import BatchState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How the ranks share the samples of a step."""

    batch_size: int
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        for name in ("batch_size", "rank", "world_size"):
            whole_number(name, getattr(self, name))
        if self.batch_size < 1:
            raise UsageError(f"batch_size={self.batch_size}: a batch has at least one sequence.")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank={self.rank} of world_size={self.world_size}: ranks are 0 to world_size - 1.")

    @property
    def step_samples(self) -> int:
        return self.batch_size * self.world_size

    def own_of_many(self, steps: int) -> slice | Int64s:
        """This rank's part of several full steps, one after the other."""
        if self.world_size == 1:
            return slice(None)
        first = np.arange(steps, dtype=np.int64)[:, None] * self.step_samples + self.rank * self.batch_size
        return (first + np.arange(self.batch_size)).reshape(-1)

    def own(self, samples: int) -> slice:
        """This rank's part of a step of so many samples; a last step that is not full is shared evenly."""
        if samples == self.step_samples:
            return slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        return slice(samples * self.rank // self.world_size, samples * (self.rank + 1) // self.world_size)


class StepHistory:
    """Which samples every step had or will have, over changes of the batch size."""

    def __init__(
        self, batches: Sequence[BatchState], total: int | None, *, drop_last: bool, most_steps: int | None = None
    ) -> None:
        self.batches = list(batches)
        last = self.batches[-1]
        self.steps: int | None = None  # in all; None: without end
        if total is not None:
            left = total - last.sample
            self.steps = last.step + (left // last.size if drop_last else -(-left // last.size))
        if most_steps is not None:
            self.steps = most_steps if self.steps is None else min(self.steps, most_steps)
        self._total = total

    def samples_of(self, step: int) -> tuple[int, int]:
        """The samples [start, stop) of a step."""
        if step < 0 or (self.steps is not None and step >= self.steps):
            has = "no end" if self.steps is None else f"{self.steps:,} steps"
            raise IndexError(f"there is no step {step}: this loader has {has}")
        index = bisect_right(self.batches, step, key=lambda batch: batch.step) - 1
        start = self.batches[index].first_sample(step)
        stop = start + self.batches[index].size
        if index + 1 < len(self.batches):
            return start, min(stop, self.batches[index + 1].sample)
        return start, stop if self._total is None else min(stop, self._total)

    def step_ranges(self, step: int, *, most: int) -> Iterator[range]:
        """All steps from this one on, several together: 1, then 2, 4, ... so that the first one comes soon.

        They belong to the last batch size; a last step that is not full stands alone.
        """
        last = self.batches[-1]
        full = None if self._total is None else last.step + (self._total - last.sample) // last.size
        if self.steps is not None:
            full = self.steps if full is None else min(full, self.steps)
        count = 1
        while full is None or step < full:
            count = min(count, most if full is None else min(most, full - step))
            yield range(step, step + count)
            step, count = step + count, count * 2
        if self.steps is not None and step < self.steps:
            yield range(step, step + 1)

    def step_of(self, sample: int) -> int | None:
        """The step that has this sample; None: it is left over at the end."""
        entry = self.batches[bisect_right(self.batches, sample, key=lambda batch: batch.sample) - 1]
        step = entry.step + (sample - entry.sample) // entry.size
        return step if self.steps is None or step < self.steps else None
