"""A StepMeter's figures and what was trained on, for TensorBoard, W&B or anything else.

In: a meter, a loader, a place to write to. Out: every so many steps the step's time, its phases' shares, tokens a second and
the digest of all samples so far: two runs that trained on the same data, in whatever batches and ranks, show the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tokpress.errors import UsageError
from tokpress.metering.meter import StepMeter

Values = dict[str, float | str]
Write = Callable[[int, Values], None]  # step, values by name


class HasState(Protocol):
    """A `Loader`, or what wraps one."""

    def state_dict(self) -> dict[str, Any]: ...


class StepLogger:
    """`logger.step(n)` at the end of each step writes every `every` of them, about the steps since the last time."""

    def __init__(self, meter: StepMeter, write: Write, *, loader: HasState | None = None, every: int = 50) -> None:
        if every < 1:
            raise UsageError(f"every={every}: a logger writes after at least one step.")
        self._meter, self._write, self._loader, self._every = meter, write, loader, every

    def step(self, number: int) -> None:
        if number % self._every == 0:
            self._write(number, self.values())

    def values(self) -> Values:
        report = self._meter.report(last=self._every)
        found: Values = {"step_ms": report.mean_ms, "step_p99_ms": report.p99_ms, "tokens_per_s": report.tokens_per_s}
        found |= {f"share_{times.phase}": times.share for times in report.phases}
        if self._loader is not None:
            state = self._loader.state_dict()
            found |= {"samples": state["samples"], "data_digest": state["digest"]}
        return found


def to_tensorboard(writer: Any) -> Write:
    """Of a `torch.utils.tensorboard.SummaryWriter`."""

    def write(step: int, values: Values) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                writer.add_text(f"tokpress/{name}", value, step)
            else:
                writer.add_scalar(f"tokpress/{name}", value, step)

    return write


def to_wandb(run: Any) -> Write:
    """Of what `wandb.init` returns."""

    def write(step: int, values: Values) -> None:
        run.log({f"tokpress/{name}": value for name, value in values.items()}, step=step)

    return write
