"""Loader: the batches of a training run, in one global order, from anywhere.

In: a dataset, or several with weights. Out: batches without end or up to it, and `state_dict()`. The order of samples is
a function of seed, data and mixture alone; ranks, batch size and threads only say who takes which part of it and when. So
a run can be resumed at once, on another number of machines, with another batch size, and goes on with the very next
sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

from tokpress.arguments import whole_number
from tokpress.errors import UsageError
from tokpress.loader.batches.bundles import PLAN_SAMPLES, Bundle, ranges_of
from tokpress.loader.batches.make import Batch, cut_batches, make_batches
from tokpress.loader.batches.prefetch import InFlight, Prefetcher, copier_to
from tokpress.loader.dataset import PretokenizedDataset, no_sequences
from tokpress.loader.looking import Lookable
from tokpress.loader.memory.buffers import BufferPool, PinnedMemory
from tokpress.loader.order.mixture import Mixture, Stages, Weights
from tokpress.loader.order.schedule import Schedule
from tokpress.loader.order.shuffle import Shuffle, parse_shuffle
from tokpress.loader.order.steps import Sharing, StepHistory
from tokpress.loader.provenance import Seen, seen_in, steps_with
from tokpress.loader.state import (
    BatchState,
    SourceState,
    StageState,
    State,
    add_digests,
    check_same_history,
    digests_of,
    read_state,
)
from tokpress.storage.pages import PAGE_BYTES

SINGLE = "data"  # the name of a source that needs none
_BLOCK_BYTES = 2**20  # of tokens, with shuffle="blocks"
_MORE_EPOCHS = "more epochs, which follow each other without a pause, give max_epochs=N"
_FILL_THREADS = 4  # that get what lies elsewhere, each several ranges at once
_MOST_FILLS_AHEAD = 64
_BUNDLE_BYTES = 2**23  # small batches are made several at a time, up to so much memory


class Loader(Lookable):
    """Iterate over it for batches (dictionaries of arrays or tensors, as the datasets make them).

    `shuffle`: True (all samples), False (as stored) or "blocks" (megabytes at a time, for slow disks).
    `max_epochs`: how often a source may be gone through, each time in a new order; one number or one for each. By default
    one epoch of a single dataset, and a mixture without end; `math.inf` has no end. A source that is used up leaves the
    mixture; the others keep their proportions.
    `steps`: end after so many steps in all. A loader with an end has a length, which trainers ask for: one that finds none
    takes a batch ahead of its training, and may lose it when it saves.
    `stages`: {sample: weights}: other weights, or another source, from that sample of the global order on.
    `drop_last`: leave out what does not fill the last step, so that all ranks make the same number of steps.
    `threads`: make batches ahead, at least `prefetch` of them (small ones in bundles); 0: when they are asked for.
    `device`: a CUDA device to copy batches to, beside the training step.

    `rank`, `world_size`: which part of each step this process gets, of how many; the order is the same for all.

        data = tokpress.PretokenizedDataset("tokens", seq_len=2048)
        loader = tokpress.Loader(data, batch_size=16, seed=0)
        for batch in loader:
            batch["input_ids"], batch["labels"]
        state = loader.state_dict()
    """

    def __init__(
        self,
        data: PretokenizedDataset | Mapping[str, PretokenizedDataset],
        *,
        batch_size: int,
        weights: Weights | None = None,
        stages: Stages | None = None,
        max_epochs: float | Mapping[str, float] | None = None,
        steps: int | None = None,
        seed: int = 0,
        shuffle: bool | str = True,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = True,
        threads: int = 1,
        prefetch: int = 4,
        device: str | None = None,
    ) -> None:
        self._sources = dict(data) if isinstance(data, Mapping) else {SINGLE: data}
        _check_sources(self._sources)
        for name, number in (("threads", threads), ("prefetch", prefetch), ("seed", seed)):
            whole_number(name, number)
        if threads < 0 or prefetch < 1:
            raise UsageError(
                f"threads={threads}, prefetch={prefetch}: give threads=0 or more (0 makes batches when they are asked for) "
                "and a prefetch of at least 1."
            )
        self._sharing = Sharing(batch_size=batch_size, rank=rank, world_size=world_size)
        self._drop_last = drop_last
        self._threads = threads
        first = next(iter(self._sources.values()))
        self._layout, self._as_tensors = first.layout, first.as_tensors
        self._bundle_steps = max(_BUNDLE_BYTES // (batch_size * first.seq_len * first.layout.token_bytes), 1)
        self._bundles_ahead = max(math.ceil(prefetch / self._bundle_steps), min(prefetch, 2), threads)
        self._plan_steps = self._bundle_steps * max(
            PLAN_SAMPLES // (self._bundle_steps * self._sharing.step_samples), 1
        )
        sizes = {name: len(source) for name, source in self._sources.items()}
        mixture = Mixture(
            sizes,
            weights or dict.fromkeys(sizes, 1),
            stages or {},
            _epoch_limits(max_epochs, sizes, single=not isinstance(data, Mapping)),
        )
        self._seed, self._shuffle = seed, parse_shuffle(shuffle)
        self._schedule = Schedule(
            sizes,
            mixture,
            seed=seed,
            shuffle=self._shuffle,
            block_samples={name: _block_samples(source) for name, source in self._sources.items()},
        )
        for source in self._sources.values():
            source.stream.expect(scattered=self._shuffle == "samples")
        self._fills_ahead = _fills_ahead(self._sources, self._bundle_steps * batch_size, self._shuffle)
        self._samples = self._step = self._digest = 0
        self._most_steps: int | None = None
        self._start_batches([])
        self._most_steps = _checked_steps(steps, self._history.steps)
        self._start_batches([])
        self._ticket = 0  # of the iterator that may go on
        self._copier = copier_to(device, as_tensors=self._as_tensors)
        self._allocate = BufferPool() if self._copier is None else PinnedMemory()

    def __len__(self) -> int:
        """Steps in all, those already made among them."""
        if self._history.steps is None:
            raise TypeError("this loader has no end, so no length; give it steps=N, or every source a max_epochs")
        return self._history.steps

    def __iter__(self) -> Iterator[Batch]:
        """Goes on after what was delivered last."""
        if self._history.steps == 0:
            raise UsageError(
                f"{self._schedule.total:,} samples do not fill a single step of {self._sharing.step_samples:,} "
                "(batch_size * world_size). Give a smaller batch_size, or drop_last=False."
            )
        if self._history.steps is not None and self._step >= self._history.steps:
            more = "more steps, give a larger steps=N" if self._step == self._most_steps else _MORE_EPOCHS
            raise UsageError(
                f"the loader is at its end, after {self._samples:,} samples. For {more}; to start again, make a new loader."
            )
        self._ticket += 1
        return self._batches(self._ticket)

    def _batches(self, ticket: int) -> Iterator[Batch]:
        arrivals = None if self._copier is None else InFlight(self._copier)
        ranges = self._history.step_ranges(self._step, most=self._plan_steps)
        plans = Prefetcher(self._plan, ranges, threads=min(self._threads, 1), ahead=1)
        bundles = (bundle for plan in plans for bundle in plan.cut(self._bundle_steps))
        filled = Prefetcher(_fill, bundles, threads=_FILL_THREADS if self._fills_ahead else 0, ahead=self._fills_ahead)
        made = Prefetcher(self._make, filled, threads=self._threads, ahead=self._bundles_ahead)
        with closing(plans), closing(filled), closing(made):
            for stop, digest, batch in chain.from_iterable(made):
                if ticket != self._ticket:
                    raise UsageError("this iterator is out of date: a newer one, or load_state_dict, has taken over.")
                self._samples, self._step = stop, self._step + 1
                self._digest = add_digests(self._digest, digest)
                if batch is not None:
                    yield batch if arrivals is None else arrivals.receive(batch)

    def _plan(self, steps: range) -> Bundle:
        """Several full steps, or one that may not be full."""
        start, first_stop = self._history.samples_of(steps[0])
        stop = self._history.samples_of(steps[-1])[1]
        size = first_stop - start
        every = self._schedule.samples(start, stop)
        whole = size == self._sharing.step_samples
        own = every[self._sharing.own_of_many(len(steps)) if whole else self._sharing.own(size)]
        sources = [self._sources[name] for name in self._schedule.mixture.names]
        stops = range(first_stop, stop + 1, size)
        return Bundle(stops, digests_of(every.digests, len(steps)), len(own), ranges_of(sources, own))

    def _make(self, bundle: Bundle) -> Iterator[tuple[int, int, Any]]:
        """For each step: up to which sample it goes, its digest, and this rank's batch, or the batch on its way."""
        batches: Iterable[Any] = [None]  # fewer samples left than ranks, in a step that stands alone
        if bundle.rows:
            steps, on_device = len(bundle.stops), self._copier is not None
            arrays = make_batches(
                self._layout, bundle.sources, bundle.rows, self._allocate, batches=steps, copy_ids=on_device
            )
            batches = cut_batches(arrays, steps, self._as_tensors)
            if self._copier is not None:
                batches = [self._copier.start(batch) for batch in batches]
        return zip(bundle.stops, bundle.digests, batches, strict=True)

    def state_dict(self) -> dict[str, Any]:
        """Where this loader is: numbers and strings, the same on all ranks; whatever was only prefetched does not count."""
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there, at once. Batch size, ranks, threads and what comes later in the mixture may be others."""
        saved = read_state(state)
        check_same_history(saved, self._state())
        if self._schedule.total is not None and saved.samples > self._schedule.total:
            raise UsageError(
                f"the state is at sample {saved.samples:,}, this loader ends at {self._schedule.total:,}. Raise max_epochs."
            )
        self._samples, self._step, self._digest = saved.samples, saved.step, int(saved.digest, 16)
        self._start_batches(saved.batches)
        self._ticket += 1

    def _start_batches(self, before: list[BatchState]) -> None:
        """From here on steps have this loader's size."""
        batches = [batch for batch in before if batch.sample < self._samples]
        size = self._sharing.step_samples
        # Also after a last step that was not full, if the stream goes on after all (a larger max_epochs).
        if not batches or batches[-1].size != size or batches[-1].first_sample(self._step) != self._samples:
            batches.append(BatchState(sample=self._samples, step=self._step, size=size))
        self._history = StepHistory(
            batches, self._schedule.total, drop_last=self._drop_last, most_steps=self._most_steps
        )

    def _state(self) -> State:
        return State(
            samples=self._samples,
            step=self._step,
            digest=f"{self._digest:016x}",
            seed=self._seed,
            shuffle=self._shuffle,
            sources={name: _source_state(source) for name, source in self._sources.items()},
            stages=[StageState(start=stage.start, weights=stage.weights) for stage in self._schedule.mixture.stages],
            batches=self._history.batches,
        )

    def where(self, step: int) -> list[Seen]:
        """The documents in a step of all ranks together, past or to come: their source files, positions and tokens."""
        start, stop = self._history.samples_of(step)
        return seen_in(self._sources, self._schedule.mixture.names, start, self._schedule.samples(start, stop))

    def when(self, doc: int, *, source: str | None = None, epoch: int = 0) -> list[int]:
        """The steps in which a document of a source is seen, in that epoch of the source; the inverse of `where`."""
        name = source if source is not None else next(iter(self._sources))
        if name not in self._sources or (source is None and len(self._sources) > 1):
            raise UsageError(f"source={source!r}: give one of {', '.join(self._sources)}.")
        return steps_with(doc, self._sources[name], name, epoch, self._schedule, self._history)


def _fill(bundle: Bundle) -> Bundle:
    """What a bundle needs comes to this machine, if it lies elsewhere, while those before it are made."""
    for source in bundle.sources:
        source.stream.fill(source.ranges)
    return bundle


def _fills_ahead(sources: Mapping[str, PretokenizedDataset], rows: int, shuffle: Shuffle) -> int:
    """How many bundles of so many rows to get ahead of time: half of what the caches hold; 0: nothing lies elsewhere."""
    ahead = 0
    for source in sources.values():
        if (pages := source.stream.pages) is not None:
            row_bytes = source.packing.seq_len * source.store.dtype.itemsize
            if shuffle == "samples":
                pages.warn_if_scattered(source.store.url, row_bytes, rows)
            fit = pages.most_bytes // 2 // (rows * (row_bytes + PAGE_BYTES))
            ahead = max(min(fit, _MOST_FILLS_AHEAD), 1)
    return ahead


def _check_sources(sources: dict[str, PretokenizedDataset]) -> None:
    if not sources:
        raise UsageError("a loader needs at least one dataset.")
    for source in sources.values():
        if not isinstance(source, PretokenizedDataset):
            raise TypeError(
                f"a loader takes datasets, not a {type(source).__name__}: give it "
                "tokpress.PretokenizedDataset(STORE, seq_len=2048), or several by name."
            )
    (first_name, first), *others = sources.items()
    for source in sources.values():
        if not len(source):
            raise no_sequences(source)
    for name, source in others:
        if (source.layout, source.as_tensors) != (first.layout, first.as_tensors):
            raise UsageError(
                f"sources {first_name!r} and {name!r} give different batches: {first.layout} and {source.layout}. "
                "Open both with the same seq_len, fields and options."
            )


def _checked_steps(steps: int | None, there_are: int | None) -> int | None:
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps}: a loader makes at least one step.")
    if steps is not None and there_are is not None and steps > there_are:
        raise UsageError(
            f"steps={steps:,}, but the data fills {there_are:,}. Give max_epochs=math.inf, or fewer steps."
        )
    return steps


def _epoch_limits(
    max_epochs: float | Mapping[str, float] | None, sizes: Mapping[str, int], *, single: bool
) -> dict[str, int | None]:
    if isinstance(max_epochs, Mapping):
        wanted: dict[str, float] = dict(max_epochs)
    else:
        wanted = dict.fromkeys(sizes, (1 if single else math.inf) if max_epochs is None else max_epochs)
    for name, epochs in wanted.items():
        if name not in sizes:
            raise UsageError(f"max_epochs names {name!r}, which is no source. The sources are: {', '.join(sizes)}.")
        if epochs != math.inf and (epochs < 1 or epochs != int(epochs)):
            raise UsageError(f"max_epochs of {name!r} is {epochs}; it must be a whole number from 1 on, or math.inf.")
    return {name: None if epochs == math.inf else int(epochs) for name, epochs in wanted.items()}


def _source_state(source: PretokenizedDataset) -> SourceState:
    return SourceState(
        fingerprint=source.store.fingerprint,
        split=source.store.split_name,
        packing=source.packing_name,
        seq_len=source.seq_len,
        sequences=len(source),
    )


def _block_samples(source: PretokenizedDataset) -> int:
    return max(_BLOCK_BYTES // (source.seq_len * source.store.dtype.itemsize), 1)
