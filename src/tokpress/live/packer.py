"""Documents from a place on -> rows of tokens, epoch after epoch.

In: inputs, a place in them, and what encodes. Out: as many rows as are asked for, with the place where the next one begins.
Documents are laid end to end and cut every `seq_len` tokens, exactly as a store's are with `concat`: what is left at the
end of an epoch, less than a sequence, is left out, and the next epoch begins with the first document again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tokpress.batches import Ids, TextBatch, TokenBatch, string_buffers
from tokpress.config import ReadConfig
from tokpress.documents.batching import coalesce, place, set_aside
from tokpress.documents.rejects import RECORDS_BEFORE_REJECTS_COUNT, check_rejects, nothing_written
from tokpress.errors import InputError
from tokpress.live.window import Place, Window
from tokpress.loader.memory.ranges import Segments
from tokpress.records import EMPTY, Input, Reject
from tokpress.sources.base import open_reader
from tokpress.sources.files import check_unchanged
from tokpress.sources.jsonl import first_fields

FIRST_REJECTS = 20  # bad records that are kept to be looked at


class Rows(NamedTuple):
    ids: Ids
    segments: Segments
    after: Place


class Packer:
    """`rejects`: the first bad records of this run are added to it."""

    def __init__(
        self,
        inputs: Sequence[Input],
        read: ReadConfig,
        encode: Callable[[TextBatch], TokenBatch],
        start: Place,
        *,
        width: int,
        stride: int,
        max_epochs: int | None,
        batch_bytes: int,
        max_rejects: str,
        rejects: list[Reject],
    ) -> None:
        self._inputs, self._read, self._encode = inputs, read, encode
        self._sizes = {"width": width, "stride": stride}
        self._max_epochs, self._batch_bytes, self._max_rejects = max_epochs, batch_bytes, max_rejects
        self._rejects = rejects
        self._begin(start)

    def _begin(self, start: Place) -> None:
        self._start = start
        self._window = Window(start, **self._sizes)
        self._texts = self._batches(start) if self._max_epochs is None or start.epoch < self._max_epochs else iter(())
        self._gave = 0  # sequences of this epoch

    def rows(self, wanted: int) -> Rows | None:
        """So many rows, or the last few; None: there is none left."""
        parts: list[tuple[Ids, Segments]] = []
        have = 0
        while have < wanted:
            count = min(self._window.sequences, wanted - have)
            if count:
                segments = self._window.segments(count)
                segments.rows[...] += have
                parts.append((self._window.rows(count).copy(), segments))
                self._window.drop_sequences(count)
                self._gave += count
                have += count
            elif not self._more():
                break
        if not parts:
            return None
        columns = [np.concatenate([getattr(part, name) for _, part in parts]) for name in Segments.__slots__]
        return Rows(np.concatenate([ids for ids, _ in parts]), Segments(*columns), self._window.place())

    def _more(self) -> bool:
        """Encodes the next batch, of the next epoch if need be. False: there is none."""
        for batch in self._texts:
            self._window.append(batch, self._encode(batch))
            if len(self._rejects) < FIRST_REJECTS:
                bad = [reject for reject in batch.rejects if reject.reason != EMPTY]
                self._rejects += bad[: FIRST_REJECTS - len(self._rejects)]
            self._check_rejects(at_end=False)
            return True
        self._check_rejects(at_end=True)
        whole = self._start == Place(epoch=self._start.epoch)  # an epoch from its first record on
        if whole and not self._window.docs_read and self._read.limit != 0:
            raise nothing_written(self._window.rejects_read, self._rejects[:3], fields=first_fields(self._inputs[0]))
        following = Place(epoch=self._start.epoch + 1)
        if self._max_epochs is not None and following.epoch >= self._max_epochs:
            return False
        if whole and not self._gave:
            raise InputError(
                f"the inputs have {self._window.tokens:,} tokens in all, no sequence of {self._sizes['width']:,}. Choose a "
                "smaller seq_len."
            )
        self._begin(following)
        return True

    def _check_rejects(self, *, at_end: bool) -> None:
        rejects = self._window.rejects_read
        read = self._window.docs_read + rejects
        if at_end or read >= RECORDS_BEFORE_REJECTS_COUNT or "%" not in self._max_rejects:
            check_rejects(rejects, read, self._max_rejects, self._rejects[:3])

    def _batches(self, start: Place) -> Iterator[TextBatch]:
        """Batches of an epoch, from a place on, without what is not to be encoded: as a build has them."""
        left = None if self._read.limit is None else self._read.limit - start.doc
        if left == 0:
            return
        for batch in coalesce(self._read_from(start), self._batch_bytes):
            if self._read.drop_empty:
                empty = np.flatnonzero(np.diff(string_buffers(batch.text)[0]) == 0)
                batch = set_aside(batch, {place(batch, i): EMPTY for i in empty.tolist()}, "no text", self._inputs)
            if left is not None:
                batch = _first_docs(batch, left)
                left -= len(batch)
            yield batch
            if left == 0:
                return

    def _read_from(self, start: Place) -> Iterator[TextBatch]:
        for index in range(start.input, len(self._inputs)):
            check_unchanged(self._inputs[index])
            reader = open_reader(self._inputs[index], index, self._read, self._batch_bytes)
            yield from reader.read(start.position if index == start.input else 0)
            check_unchanged(self._inputs[index])


def _first_docs(batch: TextBatch, docs: int) -> TextBatch:
    """The first documents of a batch, and of its rejects those that stand before the last of them."""
    if len(batch) <= docs:
        return batch
    last = place(batch, docs - 1) if docs else (-1, -1)
    return batch.only(np.arange(docs), [reject for reject in batch.rejects if (reject.input, reject.position) < last])
