"""The counters of a run.

In: what workers say and how units ended. Out: totals for the reporter and the manifest, and the stop above `--max-rejects`.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from time import perf_counter

from tokpress.documents.rejects import RECORDS_BEFORE_REJECTS_COUNT, check_rejects
from tokpress.records import Receipt, Reject, RunFacts
from tokpress.run import events
from tokpress.run.events import Reporter
from tokpress.run.messages import Advanced, Done
from tokpress.run.versions import output_versions

_EXAMPLES = 3
_COUNTERS = ("input_bytes", "text_bytes", "docs", "tokens", "rejects")


class Tally:
    def __init__(self, max_rejects: str, reporter: Reporter) -> None:
        self._max_rejects = max_rejects
        self._reporter = reporter
        self._began = perf_counter()
        self.examples: list[Reject] = []
        self._stages: Counter[str] = Counter()
        self._cpu_seconds = 0.0
        self._earlier_docs = self._earlier_rejects = 0
        self.input_bytes = self.text_bytes = self.docs = self.tokens = self.rejects = 0

    def resumed(self, receipts: Iterable[Receipt]) -> None:
        """What an earlier run did counts for the limit of rejects, not for the rates."""
        for receipt in receipts:
            self._earlier_docs += receipt.counts.written
            self._earlier_rejects += receipt.bad_records

    def heard(self, worker: int, advanced: Advanced) -> None:
        self.input_bytes += advanced.input_bytes
        self.text_bytes += advanced.text_bytes
        self.docs += advanced.docs
        self.tokens += advanced.tokens
        self.rejects += advanced.rejects
        self.examples += advanced.examples[: _EXAMPLES - len(self.examples)]
        counts = {name: getattr(advanced, name) for name in _COUNTERS}
        self._reporter.on(events.Advanced(worker=worker, **counts))
        if advanced.examples:
            self._reporter.on(events.Rejected(worker=worker, examples=advanced.examples))
        if self.docs + self.rejects >= RECORDS_BEFORE_REJECTS_COUNT or "%" not in self._max_rejects:
            self.check_rejects()

    def finished(self, done: Done) -> None:
        self.spent(done.stage_seconds, done.cpu_seconds)
        self._reporter.on(events.UnitDone.of(done.unit, done.receipts))

    def spent(self, stage_seconds: Mapping[str, float], cpu_seconds: float) -> None:
        self._stages.update(stage_seconds)
        self._cpu_seconds += cpu_seconds

    def check_rejects(self) -> None:
        rejects = self._earlier_rejects + self.rejects
        read = self._earlier_docs + self.docs + rejects
        check_rejects(rejects, read, self._max_rejects, self.examples)

    def facts(self, *, workers: int, threads: int, peak_bytes: int, started: float) -> RunFacts:
        """How the run went, for the manifest and the summary."""
        seconds = perf_counter() - self._began
        encoding = max(perf_counter() - started, 1e-9)
        stages: dict[str, float] = {stage: round(spent, 3) for stage, spent in self._stages.items()}
        return RunFacts(
            seconds=round(seconds, 3),
            input_bytes=self.input_bytes,
            text_bytes=self.text_bytes,
            input_mb_per_s=round(self.input_bytes / 1e6 / seconds, 2),
            docs_per_s=round(self.docs / seconds, 1),
            tokens_per_s=round(self.tokens / seconds),
            stage_seconds=stages,
            bottleneck=max(stages, key=lambda stage: stages[stage]) if stages else None,
            cpu_use=round(self._cpu_seconds / (encoding * workers), 3),
            peak_memory_bytes=peak_bytes,
            workers=workers,
            threads=threads,
            python=platform.python_version(),
            versions=output_versions(),
        )
