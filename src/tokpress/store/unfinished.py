"""A store that is being written: may it be, and what of it is done?

In: a storage and the plan of this run. Out: the receipts of what is done already. A receipt says that its shard exists and
where its unit goes on; what has no receipt does not count. A store of another plan is refused, with the differences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
    TRAIN,
    Manifest,
    Plan,
    Receipt,
    TokenizerFiles,
    rejects_name,
    shard_name,
)
from tokpress.storage.base import Storage
from tokpress.storage.lock import LOCK
from tokpress.store.manifest import differences, encode, find_record
from tokpress.threads import thread_pool

_TRIES = 100
_READS_AT_ONCE = 32  # of a bucket, which answers each of them late
_PREFIXES = ("", SHARDS, REJECTS, TOKENIZER)
Receipts = dict[int, list[Receipt]]  # by unit, in order; of each number `train` last


def check_output(storage: Storage) -> None:
    """Refuses to write where something else is."""
    obstacle = storage.obstacle()
    if obstacle is not None:
        raise UsageError(f"--out {storage.url} is {obstacle}. Choose a directory that does not exist yet.")
    if any(name != LOCK for name in storage.children()) and not _is_store(storage):
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
        begun = is_finished(storage) or bool(_receipt_keys(storage))
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


def _receipt_keys(storage: Storage) -> list[str]:
    return [key for key in storage.list(SHARDS) if key.endswith(".json")]


def end_run(storage: Storage) -> None:
    """Nothing can be written any more for the run of several machines that is under way, if there is one."""
    if not storage.exists(RUN_RECORD) and RUN not in storage.children():
        return
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
    receipts = _receipt_keys(storage)
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


def read_receipts(storage: Storage, units: Iterable[int] | None = None) -> Receipts:
    """Of all units that were begun, or of those among these."""
    if units is not None:
        some = {unit: unit_receipts(storage, unit) for unit in units}
        return {unit: known for unit, known in some.items() if known}
    found: defaultdict[int, dict[tuple[str, int], Receipt]] = defaultdict(dict)
    with thread_pool(1 if storage.has_lock else _READS_AT_ONCE, "receipts") as pool:
        read = list(pool.map(lambda key: _find_receipt(storage, key), _receipt_keys(storage)))
    for receipt in read:
        if receipt is not None:
            found[receipt.unit][receipt.split, receipt.number] = receipt
    receipts = {unit: _in_order(numbered) for unit, numbered in sorted(found.items())}
    return {unit: known for unit, known in receipts.items() if known}


def unit_receipts(storage: Storage, unit: int) -> list[Receipt]:
    """The receipts of one unit, in order. Looks for their names: to list a store of 100,000 shards takes its time."""
    found: dict[tuple[str, int], Receipt] = {}
    number = 0
    while (last := _find_receipt(storage, f"{SHARDS}/{shard_name(TRAIN, unit, number)}.json")) is not None:
        found[TRAIN, number] = last
        for split in last.beside:
            beside = _find_receipt(storage, f"{SHARDS}/{shard_name(split, unit, number)}.json")
            if beside is not None:
                found[split, number] = beside
        number += 1
    return _in_order(found)


def _find_receipt(storage: Storage, key: str) -> Receipt | None:
    """One that cannot be read, or speaks for another shard, is as good as none: what it stood for is written again."""
    receipt = find_record(storage, key, Receipt)
    return receipt if receipt is not None and receipt.path("json") == key else None


def _in_order(found: dict[tuple[str, int], Receipt]) -> list[Receipt]:
    """Number by number, `train` last, up to the first number for which it is missing: what comes after is written again."""
    receipts: list[Receipt] = []
    number = 0
    while (last := found.get((TRAIN, number))) is not None and all((split, number) in found for split in last.beside):
        receipts += [*(found[split, number] for split in last.beside), last]
        number += 1
    return receipts


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
