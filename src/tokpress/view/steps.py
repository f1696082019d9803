"""A step of a training run: which documents, from where, as which tokens.

In: a `Loader` and the number of a step, past or to come. Out: `StepView`, a page of the step's samples in the order of its
ranks. The loader's own order is asked; nothing is iterated and nothing moves on.
"""

from __future__ import annotations

import msgspec

from tokpress.drawing import notebook
from tokpress.errors import UsageError
from tokpress.loader.loader import Loader
from tokpress.view.sequences import SequenceView, view_sequence

PAGE_SAMPLES = 8
PAGE_TOKENS = 192


class StepSample(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a batch."""

    sample: int  # in the global order
    rank: int  # that takes it
    source: str  # of the mixture
    store: str  # that the source reads, as a user names it
    sequence: SequenceView  # its first tokens


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    steps: int | None  # that the loader has; None: without end
    world_size: int
    samples: int  # of this step, of all ranks
    tokens: int  # positions of this step
    first: int  # of the page, counted in the step
    rows: list[StepSample]

    def _repr_html_(self) -> str:
        parts = [f"<h3>sample {row.sample:,}, rank {row.rank}</h3>{row.sequence.html()}" for row in self.rows]
        of = "" if self.steps is None else f" of {self.steps:,}"
        return notebook(f"Step {self.step:,}{of}: {self.samples:,} samples", *parts)


class WhenView(msgspec.Struct, frozen=True, kw_only=True):
    """The steps in which a document is seen."""

    doc: int
    source: str
    epoch: int
    steps: list[int]


def view_step(
    loader: Loader, step: int, *, first: int = 0, count: int = PAGE_SAMPLES, tokens: int = PAGE_TOKENS
) -> StepView:
    """Samples first .. first + count - 1 of a step, each with its first tokens."""
    shares = loader.shares(step)
    ranks = [rank for rank, share in enumerate(shares) for _ in share]
    if first < 0 or count < 0:
        raise UsageError(f"there is no page of {count} samples from {first} on. Give numbers from 0 on.")
    rows = []
    for k, (source, sequence) in enumerate(loader.sequences(step, first, count), start=first):
        data = loader.sources[source]
        rows.append(
            StepSample(
                sample=shares[0].start + k,
                rank=ranks[k],
                source=source,
                store=data.store.url,
                sequence=view_sequence(
                    data.store,
                    sequence,
                    seq_len=data.seq_len,
                    method=data.method,
                    shift_labels=data.layout.shift_labels,
                    mask_across_docs=data.layout.mask_across_docs,
                    count=tokens,
                    **data.packing_options,
                ),
            )
        )
    seq_len = next(iter(loader.sources.values())).seq_len
    return StepView(
        step=step,
        steps=loader.steps,
        world_size=len(shares),
        samples=len(ranks),
        tokens=len(ranks) * seq_len,
        first=first,
        rows=rows,
    )


def view_when(loader: Loader, doc: int, *, source: str | None = None, epoch: int = 0) -> WhenView:
    """When a document of a source is seen, in that epoch of the source."""
    name = source or next(iter(loader.sources))
    return WhenView(doc=doc, source=name, epoch=epoch, steps=loader.when(doc, source=name, epoch=epoch))
