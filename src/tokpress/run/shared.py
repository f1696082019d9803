"""A store that several machines write, without a word to each other.

In: a storage that all of them reach. Out: a run that they agree on, and who does what. Whoever comes first creates
`run.json` and `plan.json`; all others have to agree with them, byte for byte. There is no lock: a unit may be written
twice, by a task that was started again while its predecessor was only slow. Such twins write the same bytes under the
same names, and their receipts are created, never replaced. All are written through the run's own directory, which goes
when the run is finished or replaced: then whoever is late cannot write any more.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
from contextlib import suppress
from time import monotonic, sleep, time
from typing import Literal

import msgspec

from tokpress.errors import StoreError, UsageError
from tokpress.records import PLAN, RUN, RUN_RECORD, Parity, Plan, TokenizerFiles
from tokpress.run.versions import output_versions
from tokpress.storage import open_run
from tokpress.storage.base import Storage
from tokpress.storage.once import create_or_read
from tokpress.store import unfinished
from tokpress.store.manifest import differences, encode, find_record, read_record
from tokpress.store.unfinished import RunRecord

_LOCK_SECONDS = 30.0
_RETRY_SECONDS = 0.05
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)  # of some shared file systems
State = Literal["running", "finished", "stopped", "failed"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works for a run, as it last said of itself; a killed one cannot say so."""

    share: str  # like 3/64; or "rest": what no share has done
    host: str
    pid: int
    started_at: float  # seconds since 1970, by its own clock
    state: State = "running"
    units: list[int] = []  # that it finished
    docs: int = 0
    tokens: int = 0


def find_run(storage: Storage) -> RunRecord | None:
    return find_record(storage, RUN_RECORD, RunRecord)


def join_run(storage: Storage, plan: Plan, parity: Parity, files: TokenizerFiles) -> RunRecord:
    """The run that is under way, or a new one; refused if this machine would write other bytes."""
    mine = RunRecord(id=secrets.token_hex(8), engine=parity.engine, versions=output_versions(), parity=parity)
    _begin(storage, mine)
    run = read_record(storage, RUN_RECORD, RunRecord)
    if run.id != mine.id:
        _check_same(storage, run, mine)
    if create_or_read(open_run(storage, run.id), PLAN, encode(plan)) != encode(plan):
        unfinished.check_same_plan(storage, plan)
        raise UsageError(f"{storage.location(PLAN)} was written by another version. Use the same tokpress everywhere.")
    unfinished.complete(open_run(storage, run.id), files)
    return run


def _begin(storage: Storage, run: RunRecord) -> None:
    """Unless a run is under way. A plain build holds the lock all the time; many that begin at once hold it in turns."""
    until = monotonic() + _LOCK_SECONDS
    while not storage.exists(RUN_RECORD):
        try:
            with storage.lock():
                _create(storage, run)
        except StoreError:
            if monotonic() > until:
                raise
            sleep(_RETRY_SECONDS)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _create(storage, run)


def _create(storage: Storage, run: RunRecord) -> None:
    storage.anchor()
    storage.prepare(RUN, run.directory)  # before it has a name: nobody makes it again once it is gone
    storage.barrier("", RUN)
    if create_or_read(storage, RUN_RECORD, encode(run)) != encode(run):
        storage.delete_prefix(run.directory)


def _check_same(storage: Storage, run: RunRecord, mine: RunRecord) -> None:
    was, is_now = ({"engine": each.engine, "versions": each.versions} for each in (run, mine))
    if was != is_now:
        raise UsageError(
            f"this machine ({socket.gethostname()}) would write other bytes than those that began the run at {storage.url}:"
            f"{differences(was, is_now)}\n"
            "Install the same versions everywhere, or begin anew: --overwrite"
        )


class Diary:
    """What this process says of itself to `tokpress status`."""

    def __init__(self, storage: Storage, run: RunRecord, share: str) -> None:
        self._storage = storage
        self._key = f"{run.directory}/attempt-{share.replace('/', '-of-')}-{secrets.token_hex(8)}.json"
        self.attempt = Attempt(share=share, host=socket.gethostname(), pid=os.getpid(), started_at=time())
        self._write()

    def finished(self, unit: int, docs: int, tokens: int) -> None:
        self.attempt = msgspec.structs.replace(
            self.attempt,
            units=[*self.attempt.units, unit],
            docs=self.attempt.docs + docs,
            tokens=self.attempt.tokens + tokens,
        )
        self._write()

    def ends(self, state: State) -> None:
        self.attempt = msgspec.structs.replace(self.attempt, state=state)
        self._write()

    def _write(self) -> None:
        with suppress(FileNotFoundError):  # the run was ended by another: what matters fails by itself
            self._storage.put(self._key, encode(self.attempt))


def attempts(storage: Storage, run: RunRecord) -> list[Attempt]:
    keys = [key for key in storage.list(run.directory) if key.startswith(f"{run.directory}/attempt-")]
    found = [read_record(storage, key, Attempt) for key in keys if key.endswith(".json")]
    return sorted(found, key=lambda attempt: (attempt.share, attempt.started_at))
