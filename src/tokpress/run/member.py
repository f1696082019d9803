"""This process, as one of several that write a store.

In: the share that it was given, or all that is left. Out: which units are its own, and what others can see of it. Told
to end (SIGTERM: a scheduler takes the machine back), it takes nothing new, gives what is under way a little time, and
says that the same command goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType

from tokpress.records import PLAN, Parity, Plan, TokenizerFiles
from tokpress.run.messages import Done
from tokpress.run.scheduler import Scheduler
from tokpress.run.share import Share, units_of
from tokpress.run.shared import Attempt, Diary, find_run, join_run
from tokpress.storage import open_run
from tokpress.storage.base import Storage
from tokpress.store import unfinished
from tokpress.store.unfinished import RunRecord

GRACE_SECONDS = 20.0  # Slurm and Kubernetes give 30, if they are not told otherwise


class Member:
    def __init__(self, storage: Storage, share: Share | None = None, *, overwrite: bool = False) -> None:
        """`overwrite`: what is there goes, and with it the run that wrote it, as soon as this process joins."""
        self._storage = storage
        self._share = share
        self._overwrite = overwrite
        self._run: RunRecord | None = None
        self._diary: Diary | None = None
        self._told_to_end = False

    @property
    def run_id(self) -> str | None:
        return self._run.id if self._run else None

    @property
    def storage(self) -> Storage:
        """To write for the run, as long as it goes on."""
        return open_run(self._storage, self._run.id) if self._run else self._storage

    @property
    def is_current(self) -> bool:
        """Whether no other run has taken the place of this one."""
        run = find_run(self._storage)
        return run is not None and run.id == self.run_id

    @property
    def attempt(self) -> Attempt | None:
        return self._diary.attempt if self._diary else None

    @property
    def label(self) -> str:
        """As `tokpress status` shows it."""
        return str(self._share or "rest")

    @property
    def has_others(self) -> bool:
        """Whether other machines work for the run at the same time."""
        return self._share is not None

    def most_rejects(self, of_the_whole: str) -> str:
        """A share is no sample of the whole, which alone decides whether there are too many."""
        return "100%" if self._share else of_the_whole

    def join(self, plan: Plan, parity: Parity, files: TokenizerFiles, sizes: Sequence[int]) -> tuple[Parity, list[int]]:
        """The proof that counts for the whole run, and the units of this process."""
        if self._overwrite:
            unfinished.clear(self._storage)
            self._storage.delete(PLAN)
        self._run = join_run(self._storage, plan, parity, files)
        self._diary = Diary(self.storage, self._run, self.label)
        return self._run.parity, units_of(self._share, sizes) if self._share else list(range(len(sizes)))

    def attach(self, run: RunRecord) -> None:
        """To finish a run that others have worked for."""
        self._run = run

    def finished(self, done: Done) -> None:
        if self._diary is not None:
            docs, tokens = (sum(getattr(receipt, name) for receipt in done.receipts) for name in ("docs", "tokens"))
            self._diary.finished(done.unit, docs, tokens)

    def num_units(self, now: int) -> int:
        """That there may be to do at a time; `now` are known."""
        return now

    def more(self, scheduler: Scheduler, plan: Plan) -> bool:  # noqa: ARG002
        """Whether more units may come; adds those that have."""
        return False

    @contextmanager
    def draining(self, scheduler: Scheduler) -> Iterator[None]:
        """Raises KeyboardInterrupt at the end, if it was told to end meanwhile."""

        def told(_number: int, _frame: FrameType | None) -> None:
            self._told_to_end = True
            scheduler.drain(GRACE_SECONDS)

        if threading.current_thread() is not threading.main_thread():  # no other thread may say how signals are taken
            yield
            return
        before = signal.signal(signal.SIGTERM, told)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
        if self._told_to_end:
            raise KeyboardInterrupt

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._diary is not None:
            stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
            self._diary.ends("finished" if kind is None else "stopped" if stopped else "failed")
