"""A bucket as one run writes it: what another run put there is never taken for its own, and none of its own is replaced by
another.

In: objects. Out: the same objects, each marked with the run that put it. A directory can be closed to those who write
through it (`fenced`); a bucket cannot. So every object is created only. One that is there already is looked at: it is equal,
and all is well; it is of a run that was ended, and is replaced, if it is still that very object (its ETag) and this run
still goes on; or it is of this run and differs, which is allowed as long as no receipt vouches for it. A process that was
frozen and goes on after its run was replaced can therefore replace nothing: what it may still do is to create an object
where there is none, with the one request that was under way. Such an object counts for nobody, `verify` included.

What is put in parts (above 64 MB) cannot be put on a condition. There it is looked at what stands there before each try, so
that only a process that is frozen between its last part and the word to join them could replace anything.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tokpress.storage import spool
from tokpress.storage.base import Stat, Storage, Upload, WriteAgain, checksum
from tokpress.storage.object_store import ObjectStorage
from tokpress.storage.requests import ObjectChanged

if TYPE_CHECKING:
    import pyarrow as pa

RECORD = "run.json"
_RUN, _SUM, _ATTEMPT = "tokpress_run", "tokpress_xxh3", "tokpress_attempt"
_OWN = ("shards/", "quarantine/", "rejects/")  # what another run put under these is as good as not there
_DATA = re.compile(r"shards/(?P<shard>[^/.]+)\.(?!json$).+|rejects/(?P<rejects>[^/.]+)\.jsonl")
_TRIES = 10
_ASK_SECONDS = 5.0


class _Mark(NamedTuple):
    """What an object says of itself."""

    run: str
    checksum: str
    attempt: str
    size: int
    version: dict[str, Any]  # to replace this very object


class GuardedStorage(Storage):
    def __init__(self, storage: ObjectStorage, run: str) -> None:
        self.url = storage.url
        self._storage = storage
        self._run = run
        self._asked = float("-inf")

    def location(self, key: str) -> str:
        return self._storage.location(key)

    def below(self, prefix: str) -> Storage:
        return self._storage.below(prefix)

    def present(self) -> bool:
        return self._storage.present()

    def stat(self, key: str) -> Stat | None:
        return self._storage.stat(key)

    def exists(self, key: str) -> bool:
        if not key.startswith(_OWN):
            return self._storage.exists(key)
        found = self._mark(key)
        return found is not None and found.run in ("", self._run)

    def list(self, prefix: str = "") -> list[str]:
        return self._storage.list(prefix)

    def list_stats(self, prefix: str = "") -> Sequence[tuple[str, Stat]]:
        return self._storage.list_stats(prefix)

    def children(self, prefix: str = "") -> Sequence[str]:
        return self._storage.children(prefix)

    def open(self, key: str) -> pa.NativeFile:
        return self._storage.open(key)

    def read(self, key: str) -> bytes:
        data, attributes = self._storage.read_marked(key)
        if key.startswith(_OWN) and attributes.get(_RUN, self._run) != self._run:
            raise FileNotFoundError(errno.ENOENT, "there is only what a run left that was replaced", self.location(key))
        return data

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def delete_prefix(self, prefix: str) -> None:
        self._storage.delete_prefix(prefix)

    def local(self, key: str) -> Path:
        return self._storage.local(key)

    def create(self, key: str) -> Upload:
        def put(data: Any) -> None:
            self._place(key, data, if_absent=False)

        def size_of() -> int | None:
            found = self.stat(key)
            return None if found is None else found.size

        return spool.SpooledUpload(key, self.location(key), put, size_of)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        if key.startswith(f"run/{self._run}/"):  # of one process alone, which says more with each
            self._check_current(key)
            self._storage.put(key, data)
        else:
            self._place(key, data, if_absent=if_absent)

    def _place(self, key: str, data: Any, *, if_absent: bool) -> None:
        mine = {_RUN: self._run, _SUM: checksum(data), _ATTEMPT: secrets.token_hex(8)}
        self._check_current(key, seconds=_ASK_SECONDS)
        version: dict[str, Any] | None = None  # None: there is to be no such object
        for _ in range(_TRIES):
            try:
                self._storage.put_marked(key, data, mine, version)
            except (FileExistsError, ObjectChanged):
                pass  # or it was this one, and the answer got lost
            else:
                return
            found = self._mark(key)
            if found is None:
                version = None
                continue
            if found.attempt == mine[_ATTEMPT]:
                return
            version = self._may_replace(key, found, (mine[_SUM], len(data)), if_absent=if_absent)
            if version is None:
                return
        raise OSError(f"{self.location(key)} can be neither created nor replaced")

    def _may_replace(
        self, key: str, found: _Mark, wanted: tuple[str, int], *, if_absent: bool
    ) -> dict[str, Any] | None:
        """The version that may be replaced; None: it is equal. What is asked here is asked after that version was seen, so
        that whatever changes the answers later also changes the version."""
        if found.run not in ("", self._run):
            self._check_current(key)
            return found.version
        if if_absent:
            raise FileExistsError(17, "there is such an object", self.location(key))
        if (found.checksum, found.size) == wanted:
            return None
        receipt = _vouches_for(key)
        if receipt is not None and (vouched := self._mark(receipt)) is not None and vouched.run in ("", self._run):
            raise WriteAgain(0, "another machine has written this shard, and otherwise", self.location(key))
        return found.version

    def _mark(self, key: str) -> _Mark | None:
        try:
            marks, size, version = self._storage.mark_of(key)
        except FileNotFoundError:
            return None
        return _Mark(marks.get(_RUN, ""), marks.get(_SUM, ""), marks.get(_ATTEMPT, ""), size, version)

    def _check_current(self, key: str, *, seconds: float = 0.0) -> None:
        """Raises FileNotFoundError if the run was ended, or another took its place. `seconds`: unless it was asked so
        short a time ago; all processes of a run ask for the same object, and a bucket answers only so many."""
        now = monotonic()
        if seconds and now - self._asked < seconds:
            return
        if msgspec.json.decode(self._storage.read(RECORD), type=dict[str, Any]).get("id") != self._run:
            raise FileNotFoundError(errno.ENOENT, "the run that this is of was replaced by another", self.location(key))
        self._asked = now


def _vouches_for(key: str) -> str | None:
    """The receipt of the shard that an object belongs to, if it does to one."""
    found = _DATA.fullmatch(key)
    if found is None:
        return None
    return f"shards/{found['shard'] or 'train-' + found['rejects']}.json"


def is_of_another_run(storage: Storage, key: str, sealed: str) -> bool:
    """Whether an object is of another run than the one that put `sealed`: left by a process of a run that was replaced."""
    if not isinstance(storage, ObjectStorage) or storage.read_only:
        return False
    try:
        runs = [storage.mark_of(each)[0].get(_RUN) for each in (key, sealed)]
    except FileNotFoundError:
        return False
    return None not in runs and runs[0] != runs[1]
