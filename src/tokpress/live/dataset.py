"""LiveDataset: the batches of a training run, tokenized while it runs.

In: inputs as for a build, a tokenizer, a length. Out: the same batches as a `Loader` without shuffling gives of a store of
these inputs: the same names, the same ids, in the same order. A thread reads, encodes and packs ahead of the training loop,
up to `prefetch` batches; with it work as many encoders as there are `workers`.

Every rank reads and encodes everything and takes its rows of each step: where a sequence begins depends on the tokens of all
documents before it. So the order does not depend on the number of ranks, which may change, and no sequence is lost or
doubled; but the work is done on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import repeat
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from tokpress.arguments import whole_number
from tokpress.errors import UsageError
from tokpress.live.packer import Packer, Rows
from tokpress.live.state import LiveState, check_same_stream, inputs_digest, read_state
from tokpress.live.tokens import LiveTokens
from tokpress.live.window import Place
from tokpress.loader.batches.fields import Block, Layout, make_fields
from tokpress.loader.batches.make import Batch, cut_batches
from tokpress.loader.batches.prefetch import Copy, InFlight, Prefetcher, copier_to
from tokpress.loader.dataset import DEFAULT_FIELDS, Output, check_fields, checked_dtype, wants_tensors
from tokpress.loader.memory.buffers import BufferPool, PinnedMemory
from tokpress.loader.order.steps import Sharing
from tokpress.options import LiveOptions, PathLike
from tokpress.packing.base import check_seq_len
from tokpress.records import Parity, Reject

_BYTES_PER_TOKEN = 4  # about; a batch of text is to give about a step of all ranks
_MIN_BATCH_BYTES, _MAX_BATCH_BYTES = 16 * 1024, 1024**2


class LiveDataset:
    """Iterate over it for batches; it goes on after what was delivered last.

    `fields`, `shift_labels`, `mask_across_docs`, `ignore_index`, `max_docs`, `dtype`, `output` are those of a
    `PretokenizedDataset`; `rank`, `world_size`, `drop_last`, `device` those of a `Loader`.
    `max_epochs`: how often the inputs are gone through; `math.inf` has no end.
    `workers`: encoders beside the training loop; by default one for each core but one.
    `prefetch`: batches made ahead; 0: when they are asked for.

    `options` are those of a build that `docs/options.md` marks *live*.

        data = tokpress.LiveDataset("data/*.jsonl.zst", tokenizer="spm.model", seq_len=2048, batch_size=8)
        for batch in data:
            batch["input_ids"], batch["labels"]
        state = data.state_dict()
    """

    def __init__(
        self,
        inputs: PathLike | Sequence[PathLike] = (),
        *,
        tokenizer: PathLike,
        seq_len: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        fields: Sequence[str] = DEFAULT_FIELDS,
        shift_labels: bool = False,
        mask_across_docs: bool = False,
        ignore_index: int = -100,
        max_docs: int | None = None,
        dtype: npt.DTypeLike = np.int64,
        output: Output = "auto",
        max_epochs: float = 1,
        drop_last: bool = True,
        prefetch: int = 16,
        workers: int | None = None,
        device: str | None = None,
        **options: Unpack[LiveOptions],
    ) -> None:
        check_seq_len(seq_len)
        check_fields(fields, output)
        if max_epochs != math.inf and (max_epochs < 1 or max_epochs != int(max_epochs)):
            raise UsageError(f"max_epochs={max_epochs}: give a whole number from 1 on, or math.inf.")
        self._sharing = Sharing(batch_size=batch_size, rank=rank, world_size=world_size)
        if whole_number("prefetch", prefetch) < 0:
            raise UsageError(f"prefetch={prefetch}: give a number of batches to make ahead, or 0 to make none.")
        self._tokens = LiveTokens(inputs, tokenizer, options, workers=workers)
        self.layout = Layout(
            seq_len=seq_len,
            fields=tuple(fields),
            shift_labels=shift_labels,
            mask_across_docs=mask_across_docs,
            pad_id=self._tokens.frame.eos_id or 0,
            ignore_index=ignore_index,
            max_docs=min(max_docs or seq_len, seq_len),
            dtype=checked_dtype(dtype, self._tokens.frame.vocab_size, needs_sign="labels" in fields),
        )
        self._as_tensors = wants_tensors(output)
        self._max_epochs = None if max_epochs == math.inf else int(max_epochs)
        self._drop_last, self._prefetch = drop_last, prefetch
        self._copier = copier_to(device, as_tensors=self._as_tensors)
        self._allocate = BufferPool() if self._copier is None else PinnedMemory()
        self._samples = self._step = 0
        self._place = Place()
        self.first_rejects: list[Reject] = []  # the first bad records of this run, to be looked at
        self._ticket = 0  # of the iterator that may go on

    def __repr__(self) -> str:
        sharing = self._sharing
        ranks = f", rank={sharing.rank} of {sharing.world_size}" if sharing.world_size > 1 else ""
        size = f"seq_len={self.seq_len}, batch_size={sharing.batch_size}{ranks}"
        return f"LiveDataset({self.parity.engine}, {size}, step={self._step:,}, rejects={self.rejects:,})"

    @property
    def seq_len(self) -> int:
        return self.layout.seq_len

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, added tokens included."""
        return self._tokens.frame.vocab_size

    @property
    def parity(self) -> Parity:
        """Which engine encodes, and how it was chosen."""
        return self._tokens.parity

    @property
    def rejects(self) -> int:
        """Bad records that were passed over in this epoch, up to where the last batch ended; `first_rejects` has some."""
        return self._place.rejects

    def __iter__(self) -> Iterator[Batch]:
        """Goes on after what was delivered last."""
        self._ticket += 1
        return self._batches(self._ticket)

    def _batches(self, ticket: int) -> Iterator[Batch]:
        arrivals = None if self._copier is None else InFlight(self._copier)
        delivered = self._samples
        make = self._maker()
        with closing(
            Prefetcher(lambda _: make(), repeat(None), threads=min(self._prefetch, 1), ahead=self._prefetch)
        ) as made:
            for step in made:
                if ticket != self._ticket:
                    raise UsageError("this iterator is out of date: a newer one, or load_state_dict, has taken over.")
                if step is None:
                    break
                self._samples, self._step, self._place = self._samples + step.samples, self._step + 1, step.after
                if step.copy is not None and arrivals is not None:
                    yield arrivals.receive(step.copy)
                elif step.batch is not None:
                    yield step.batch
        if self._samples == delivered:
            raise UsageError(
                f"the inputs are at their end, after {self._samples:,} samples: what is left does not fill a step of "
                f"{self._sharing.step_samples:,} (batch_size * world_size). Give a smaller batch_size, drop_last=False or, "
                "for more epochs, max_epochs=N."
            )

    def _maker(self) -> Callable[[], _Step | None]:
        """What makes one step after the other, from where this data set is."""
        layout, sharing, tokens = self.layout, self._sharing, self._tokens
        packer = Packer(
            tokens.inputs,
            tokens.read,
            tokens.encode,
            self._place,
            width=layout.seq_len + int(layout.shift_labels),  # rows share a token, so that the last input has its label
            stride=layout.seq_len,
            max_epochs=self._max_epochs,
            batch_bytes=min(
                max(_BYTES_PER_TOKEN * layout.seq_len * sharing.step_samples, _MIN_BATCH_BYTES), _MAX_BATCH_BYTES
            ),
            max_rejects=tokens.max_rejects,
            rejects=self.first_rejects,
        )

        def make() -> _Step | None:
            rows = packer.rows(sharing.step_samples)
            if rows is None or (self._drop_last and len(rows.ids) < sharing.step_samples):
                return None
            own = sharing.own(len(rows.ids))
            if own.start == own.stop:  # fewer rows left than ranks
                return _Step(len(rows.ids), rows.after, None, None)
            batch = self._fields(rows, own)
            copy = None if self._copier is None else self._copier.start(batch)
            return _Step(len(rows.ids), rows.after, batch, copy)

        return make

    def _fields(self, rows: Rows, own: slice) -> Batch:
        layout = self.layout
        shape = (own.stop - own.start, rows.ids.shape[1])
        ids = self._allocate("ids" if layout.shift_labels else "input_ids", shape, layout.dtype)
        ids[...] = rows.ids[own]
        segments = rows.segments.in_rows(own.start, own.stop) if layout.needs_segments else None
        arrays = make_fields(layout, Block(ids, None, None, segments), self._allocate)
        return next(cut_batches(arrays, 1, self._as_tensors))

    def state_dict(self) -> dict[str, Any]:
        """Where this data set is: numbers and strings, the same on all ranks; what was only prefetched does not count."""
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there. Batch size, ranks and workers may be others."""
        saved = read_state(state)
        check_same_stream(saved, self._state())
        self._samples, self._step, self._place = saved.samples, saved.step, saved.place
        self._ticket += 1

    def _state(self) -> LiveState:
        tokens = self._tokens
        return LiveState(
            samples=self._samples,
            step=self._step,
            place=self._place,
            inputs=inputs_digest(tokens.inputs),
            tokenizer=tokens.encoder.engine.info.fingerprint,
            options={**tokens.options(), "seq_len": self.seq_len},
        )

    def close(self) -> None:
        """Ends the encoders. They end by themselves when nobody has the data set any more."""
        self._ticket += 1
        self._tokens.encoder.close()


class _Step(NamedTuple):
    """A step as it was made: rows of all ranks, where the next one begins, and this rank's batch."""

    samples: int
    after: Place
    batch: Batch | None
    copy: Copy | None
