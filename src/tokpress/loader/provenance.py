"""Which documents are in a step, and in which steps is a document.

In: samples of the global order, or a document. Out: the documents with the file and position they came from, or the
steps. Both are worked out from the order and the packing; nothing was recorded while training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.order.schedule import Samples, Schedule
from tokpress.loader.order.steps import StepHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A range of a document in a sample."""

    sample: int  # in the global order
    source: str  # of the mixture
    sequence: int  # in the source's packing
    doc: int  # in the source's split
    first_token: int  # within the document
    tokens: int
    path: str  # of the input that the document comes from
    position: int  # there: byte offset or row


def seen_in(
    sources: Mapping[str, PretokenizedDataset], names: Sequence[str], first_sample: int, samples: Samples
) -> list[Seen]:
    found = []
    for index in np.unique(samples.sources).tolist():
        here = np.flatnonzero(samples.sources == index)
        data = sources[names[index]]
        segments = data.stream.segments(data.ranges(samples.sequences[here]).ranges)
        for row, doc, offset, length in zip(
            here[segments.rows].tolist(),
            segments.docs.tolist(),
            segments.offsets.tolist(),
            segments.lengths.tolist(),
            strict=True,
        ):
            path, position = data.store.where(doc)
            found.append(
                Seen(
                    sample=first_sample + row,
                    source=names[index],
                    sequence=int(samples.sequences[row]),
                    doc=doc,
                    first_token=offset,
                    tokens=length,
                    path=path,
                    position=position,
                )
            )
    return sorted(found, key=lambda seen: seen.sample)  # stable: within a sample by column


def steps_with(
    doc: int, data: PretokenizedDataset, name: str, epoch: int, schedule: Schedule, history: StepHistory
) -> list[int]:
    if not 0 <= doc < data.store.num_docs:
        raise IndexError(f"document {doc} is outside the {data.store.num_docs:,} documents of {data.store.url}")
    samples = [schedule.sample_of(name, sequence, epoch) for sequence in data.packing.sequences_of(doc).tolist()]
    steps = {history.step_of(sample) for sample in samples if sample is not None}
    return sorted(step for step in steps if step is not None)
