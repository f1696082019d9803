"""The directory that a run writes to: may it, and is there something to continue?

In: a directory and the plan of this run. Out: the receipts of what is done already. A receipt says that its shard exists and
where its unit goes on; what has no receipt does not count. A store of another plan is refused, with the differences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tokpress.engines.base import TokenizerFiles
from tokpress.errors import StoreError, UsageError
from tokpress.run.job import Advanced, Task
from tokpress.sources.base import STDIN
from tokpress.store.durable import TEMPORARY_SUFFIX, make_directory, remove, remove_tree, sync_directory, write_file
from tokpress.store.lock import LOCK
from tokpress.store.manifest import (
    MANIFEST,
    PACKS,
    PLAN,
    REJECTS,
    SHARDS,
    TOKENIZER,
    TRAIN,
    Manifest,
    Plan,
    Receipt,
    Record,
    encode,
    read_record,
    rejects_name,
    shard_name,
)

_SHOWN_DIFFERENCES = 10
Receipts = dict[int, list[Receipt]]  # by unit, in order; of each number `train` last


def check_output(directory: Path) -> None:
    """Refuses to write where something else is."""
    if directory.is_symlink() and not directory.exists():
        raise UsageError(f"--out {directory} is a link to nowhere. Choose a directory that does not exist yet.")
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--out {directory} is a file. Choose a directory that does not exist yet.")
    ours = (LOCK, PLAN + TEMPORARY_SUFFIX)  # all that a run which died very early leaves
    if directory.is_dir() and any(path.name not in ours for path in directory.iterdir()) and not _is_store(directory):
        raise UsageError(f"--out {directory} is not empty and not a store. Choose a directory that does not exist yet.")


def _is_store(directory: Path) -> bool:
    """Whether a plan or a manifest there is ours: only then may what stands beside it be replaced."""
    return stored_plan(directory) is not None or _read(directory / MANIFEST, Manifest) is not None


def stored_plan(directory: Path) -> Plan | None:
    """The plan of an earlier run; None if there was none, or it is not to be read."""
    return _read(directory / PLAN, Plan)


def _read(path: Path, kind: type[Record]) -> Record | None:
    try:
        return read_record(path, kind)
    except StoreError:
        return None


def is_finished(directory: Path) -> bool:
    return (directory / MANIFEST).is_file()


def check_same_plan(directory: Path, plan: Plan) -> None:
    """Raises UsageError if the store there comes from something else."""
    old = stored_plan(directory)
    if old is None:
        return
    state = "a finished" if is_finished(directory) else "an unfinished"
    if old == plan:
        begun = is_finished(directory) or any((directory / SHARDS).glob("*.json"))
        if begun and any(source.path == STDIN for source in plan.inputs):
            raise UsageError(
                f"{directory} holds {state} store of standard input, which cannot be read a second time. "
                "Choose another --out, or replace it with --overwrite."
            )
        return
    raise UsageError(
        f"{directory} holds {state} store of something else:"
        f"{differences(msgspec.to_builtins(old), msgspec.to_builtins(plan))}\n"
        "Choose another --out, or replace it with --overwrite."
    )


def differences(old: Any, new: Any) -> str:
    """What differs between two records, a line each; the first of them, if there are many."""
    found = list(_differences(old, new))
    shown = "".join(f"\n  {difference}" for difference in found[:_SHOWN_DIFFERENCES])
    rest = len(found) - _SHOWN_DIFFERENCES
    return shown + (f"\n  and {rest} more" if rest > 0 else "")


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            yield from _differences(old.get(key), new.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: were {len(old)}, are {len(new)}"
            return
        for i, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, now, f"{where}[{i}]")
    elif old != new:
        yield f"{where}: was {old}, is {new}"


def begin(directory: Path, plan: Plan, files: TokenizerFiles) -> None:
    """An empty store with its plan.

    It can be stopped anywhere: what an earlier run left loses its manifest first, then its receipts, then what they speak
    for; its plan is replaced in one step, so that there is one at any time and the directory is known to be a store.
    """
    sync_directory(directory.parent)  # in which it may be new
    remove(directory / MANIFEST)
    sync_directory(directory)
    receipts = list((directory / SHARDS).glob("*.json"))
    for path in receipts:
        remove(path)
    if receipts:
        sync_directory(directory / SHARDS)
    for name in (SHARDS, REJECTS, TOKENIZER):
        for path in (directory / name).iterdir() if (directory / name).is_dir() else []:
            remove(path)
    remove_tree(directory / PACKS)  # plans for the old tokens, which would be refused anyway
    write_file(directory / PLAN, encode(plan))
    furnish(directory, files)


def furnish(directory: Path, files: TokenizerFiles) -> None:
    """What else a store has from the start, made if it is not there: a run may have died before it could."""
    for name in (SHARDS, REJECTS, TOKENIZER):
        make_directory(directory / name)
    sync_directory(directory)
    for path in (directory / TOKENIZER).iterdir():
        if path.name not in files.files:
            remove(path)
    for name, data in files.files.items():
        path = directory / TOKENIZER / name
        if not path.is_file() or path.read_bytes() != data:
            write_file(path, data)


def read_receipts(directory: Path) -> Receipts:
    found: defaultdict[int, dict[tuple[str, int], Receipt]] = defaultdict(dict)
    for path in (directory / SHARDS).glob("*.json"):
        receipt = read_record(path, Receipt)
        found[receipt.unit][receipt.split, receipt.number] = receipt
    receipts = {unit: _in_order(numbered) for unit, numbered in sorted(found.items())}
    return {unit: known for unit, known in receipts.items() if known}


def unit_receipts(directory: Path, unit: int) -> list[Receipt]:
    """The receipts of one unit, in order. Looks for their names: to list a store of 100,000 shards takes its time."""
    found: dict[tuple[str, int], Receipt] = {}
    number = 0
    while (path := directory / SHARDS / f"{shard_name(TRAIN, unit, number)}.json").is_file():
        found[TRAIN, number] = read_record(path, Receipt)
        for split in found[TRAIN, number].beside:
            found[split, number] = read_record(directory / SHARDS / f"{shard_name(split, unit, number)}.json", Receipt)
        number += 1
    return _in_order(found)


def _in_order(found: dict[tuple[str, int], Receipt]) -> list[Receipt]:
    """Number by number, `train` last, up to the first number for which it is missing: what comes after is written again."""
    receipts: list[Receipt] = []
    number = 0
    while (last := found.get((TRAIN, number))) is not None and all((split, number) in found for split in last.beside):
        receipts += [*(found[split, number] for split in last.beside), last]
        number += 1
    return receipts


def remaining_tasks(plan: Plan, receipts: Receipts) -> list[Task]:
    """A task for every unit that is not finished, from its last receipt on."""
    tasks = (
        continued(Task(unit=unit, slices=slices), receipts.get(unit, [])) for unit, slices in enumerate(plan.units)
    )
    return [task for task in tasks if task is not None]


def continued(task: Task, receipts: list[Receipt]) -> Task | None:
    """What is left of a task after these receipts of its unit; None if nothing is."""
    if not receipts:
        return task
    last = receipts[-1]
    if last.next_input is None or last.next_position is None:
        return None
    written = sum(receipt.counts.written for receipt in receipts if receipt.number >= task.first_shard)
    return replace(
        task,
        first_shard=last.number + 1,
        start=(last.next_input, last.next_position),
        limit=None if task.limit is None else task.limit - written,
    )


def lost(heard: Advanced, task: Task, receipts: Sequence[Receipt]) -> Advanced:
    """What a worker said it had done but has no receipt for, to be taken back: it will be done again."""
    kept = [receipt for receipt in receipts if receipt.number >= task.first_shard]
    docs = sum(receipt.counts.written for receipt in kept) - heard.docs
    share = docs / max(heard.docs, 1)
    return Advanced(
        input_bytes=int(share * heard.input_bytes),
        text_bytes=int(share * heard.text_bytes),
        docs=docs,
        tokens=sum(receipt.tokens for receipt in kept) - heard.tokens,
        rejects=sum(receipt.bad_records for receipt in kept) - heard.rejects,
    )


def remove_strays(directory: Path, receipts: Receipts) -> None:
    """Files that no receipt speaks for: of workers that died before they could write one."""
    known = [receipt for unit in receipts.values() for receipt in unit]
    shards = {receipt.name for receipt in known}
    rejects = {rejects_name(receipt.unit, receipt.number) for receipt in known if receipt.rejects}
    for path in (directory / SHARDS).iterdir():
        if path.name.split(".")[0] not in shards or path.suffix == TEMPORARY_SUFFIX:
            remove(path)
    for path in (directory / REJECTS).iterdir():
        if path.name not in rejects:
            remove(path)
