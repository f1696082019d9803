"""A store that is being written: may it be, how is it begun, and what is removed?

In: a storage and the plan of this run. Out: a store that holds nothing but what its receipts speak for. A store of another
plan is refused, with the differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from tokpress.errors import UsageError
from tokpress.records import (
    MANIFEST,
    PACKS,
    PLAN,
    QUARANTINE,
    REJECTS,
    RUN,
    RUN_RECORD,
    SHARDS,
    STDIN,
    TOKENIZER,
    Manifest,
    Parity,
    Plan,
    TokenizerFiles,
    rejects_name,
)
from tokpress.storage.base import Storage
from tokpress.storage.lock import LOCK
from tokpress.store.manifest import differences, encode, find_record
from tokpress.store.receipts import Receipts, receipt_keys

_TRIES = 100
_PREFIXES = ("", SHARDS, REJECTS, TOKENIZER)
_BEFORE_PLAN = {LOCK, RUN, RUN_RECORD, SHARDS, REJECTS, TOKENIZER}
_OF_A_RUN = re.compile(rf"{RUN}/[0-9a-f]{{16}}/")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what decides the bytes beside the plan, and which run it is."""

    id: str
    engine: str
    versions: dict[str, str]  # of the packages that decide the output
    parity: Parity  # as the first machine found it

    @property
    def directory(self) -> str:
        return f"{RUN}/{self.id}"


def check_output(storage: Storage) -> None:
    """Refuses to write where something else is."""
    obstacle = storage.obstacle()
    if obstacle is not None:
        raise UsageError(f"--out {storage.url} is {obstacle}. Choose a directory that does not exist yet.")
    if any(name != LOCK for name in storage.children()) and not _is_store(storage) and not _was_begun(storage):
        raise UsageError(
            f"--out {storage.url} is not empty and not a store. Choose a directory that does not exist yet."
        )
    _check_no_links(storage)


def _check_no_links(storage: Storage) -> None:
    """A link in a store leads to what is not the store's: nothing may be written or deleted there."""
    for key in storage.links(*_PREFIXES):
        raise UsageError(
            f"{storage.location(key)} is a link. Nothing is written through links: what they lead to is not the store's. "
            "Remove it, or choose another --out."
        )


def _is_store(storage: Storage) -> bool:
    """Whether a plan or a manifest there is ours: only then may what stands beside it be replaced."""
    return stored_plan(storage) is not None or find_record(storage, MANIFEST, Manifest) is not None


def _was_begun(storage: Storage) -> bool:
    """Whether all that is there stands before a plan is written, or after one is deleted: somebody was killed then."""
    if not _BEFORE_PLAN.issuperset(storage.children()):
        return False
    is_ours = find_record(storage, RUN_RECORD, RunRecord) is not None
    return all(_OF_A_RUN.match(key) or key == LOCK or (key == RUN_RECORD and is_ours) for key in storage.list())


def stored_plan(storage: Storage) -> Plan | None:
    """The plan of an earlier run; None if there was none, or it is not to be read."""
    return find_record(storage, PLAN, Plan)


def is_finished(storage: Storage) -> bool:
    return storage.exists(MANIFEST)


def check_same_plan(storage: Storage, plan: Plan) -> None:
    """Raises UsageError if the store there comes from something else."""
    old = stored_plan(storage)
    if old is None:
        return
    state = "a finished" if is_finished(storage) else "an unfinished"
    if old == plan:
        begun = is_finished(storage) or bool(receipt_keys(storage))
        if begun and any(source.path == STDIN for source in plan.inputs):
            raise UsageError(
                f"{storage.url} holds {state} store of standard input, which cannot be read a second time. "
                "Choose another --out, or replace it with --overwrite."
            )
        return
    raise UsageError(
        f"{storage.url} holds {state} store of something else:"
        f"{differences(msgspec.to_builtins(old), msgspec.to_builtins(plan))}\n"
        "Choose another --out, or replace it with --overwrite."
    )


@contextmanager
def tidied(storage: Storage) -> Iterator[None]:
    """Nothing half-written stays behind an error or an interruption: a worker that is told to end while it opens a file
    cannot close it. For whoever holds the lock, around all writers."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # the error is what matters
            storage.delete_abandoned(*_PREFIXES)
        raise


def end_run(storage: Storage) -> None:
    """Nothing can be written any more for the run of several machines that is under way, if there is one."""
    if not storage.exists(RUN_RECORD) and RUN not in storage.children():
        return
    if not storage.has_lock:  # a bucket: by this record alone a process knows that its run goes on
        storage.delete(RUN_RECORD)
    for _ in range(_TRIES):
        try:
            storage.delete_prefix(RUN)
            break
        except OSError:  # somebody put something there just then
            continue
    storage.delete(RUN_RECORD)
    storage.barrier("")


def begin(storage: Storage, plan: Plan, files: TokenizerFiles) -> None:
    """An empty store with its plan.

    Its plan is replaced in one step, so that there is one at any time and the directory is known to be a store.
    """
    clear(storage)
    storage.put(PLAN, encode(plan))
    complete(storage, files)


def clear(storage: Storage) -> None:
    """Removes what an earlier run left, but for its plan. It can be stopped anywhere: the manifest goes first, then the
    receipts, then what they speak for."""
    storage.anchor()
    storage.delete(MANIFEST)
    storage.barrier("")
    end_run(storage)
    receipts = receipt_keys(storage)
    for key in receipts:
        storage.delete(key)
    if receipts:
        storage.barrier(SHARDS)
    for prefix in (SHARDS, REJECTS, TOKENIZER):
        for key in storage.list(prefix):
            storage.delete(key)
    storage.delete_abandoned(*_PREFIXES)
    for prefix in (PACKS, QUARANTINE):  # of the old tokens: plans that would be refused anyway, and verdicts
        storage.delete_prefix(prefix)


def discard(storage: Storage) -> None:
    """A store that is not to be: nothing is left that another command could take for one."""
    clear(storage)
    storage.delete(PLAN)
    for prefix in (SHARDS, REJECTS, TOKENIZER):
        storage.delete_prefix(prefix)
    storage.barrier("")


def complete(storage: Storage, files: TokenizerFiles) -> None:
    """What else a store has from the start, made if it is not there: a run may have died before it could."""
    storage.prepare(SHARDS, REJECTS, TOKENIZER)
    storage.barrier("")
    for key in storage.list(TOKENIZER):
        if key.removeprefix(f"{TOKENIZER}/") not in files.files:
            storage.delete(key)
    for name, data in files.files.items():
        key = f"{TOKENIZER}/{name}"
        if not storage.exists(key) or storage.read(key) != data:
            storage.put(key, data)


def keeps_conditions(storage: Storage, *, shared: bool) -> bool:
    """Whether the store keeps a second writer from replacing a receipt. One that does not is for one machine only."""
    if storage.below(SHARDS).keeps_conditions():
        return True
    if shared:
        raise UsageError(
            f"{storage.url} ignores the condition of create-only puts, so several machines would harm each other there. "
            "Write to it from one machine, or to another bucket."
        )
    return False


def remove_strays(storage: Storage, receipts: Receipts) -> None:
    """Files that no receipt speaks for: of workers that died before they could write one."""
    known = [receipt for unit in receipts.values() for receipt in unit]
    shards = {receipt.path(extension) for receipt in known for extension in (*receipt.files, "json")}
    rejects = {f"{REJECTS}/{rejects_name(receipt.unit, receipt.number)}" for receipt in known if receipt.rejects}
    for key in (*storage.list(SHARDS), *storage.list(REJECTS)):
        if key not in shards and key not in rejects:
            storage.delete(key)
    storage.delete_prefix(QUARANTINE)  # what was set aside stands in the rejects
    storage.delete_abandoned(*_PREFIXES)
