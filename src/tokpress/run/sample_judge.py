"""Inputs of which nothing can come, told from a sample.

In: the batches of a sample. Out: nothing, or `TooManyRejects` before anything is written. A number of bad records is
exceeded whatever else there is. Of a share a sample can say little, unless not one record in it was good.
"""

from __future__ import annotations

from tokpress.batches import TextBatch
from tokpress.config import BuildConfig
from tokpress.documents.rejects import RECORDS_BEFORE_REJECTS_COUNT, check_rejects
from tokpress.records import Reject

_EXAMPLES = 3


class SampleJudge:
    def __init__(self, config: BuildConfig) -> None:
        self._most = config.check.most_rejects
        self._applies = config.read.limit is None  # else a bad record of the sample may be one that is never read
        self._docs = self._rejects = 0
        self._examples: list[Reject] = []

    def see(self, batch: TextBatch) -> None:
        self._docs += len(batch)
        self._rejects += sum(reject.records for reject in batch.rejects)
        self._examples += batch.rejects[: _EXAMPLES - len(self._examples)]
        if "%" not in self._most:
            self._check()

    def end(self) -> None:
        if not self._docs and self._rejects >= RECORDS_BEFORE_REJECTS_COUNT:
            self._check()

    def _check(self) -> None:
        if self._applies:
            check_rejects(self._rejects, self._docs + self._rejects, self._most, self._examples)
