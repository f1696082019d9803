"""Receipts: which shards of a store exist, found with one read a unit.

In: a storage. Out: the receipts of every unit that was begun, in order. A receipt says that its shard exists and where its
unit goes on; what has no receipt does not count. The receipt of `train` repeats those of its unit that were written before
it, so that a run that goes on reads the last one of each unit only. Whether the others exist is asked still: one that was
removed is not brought back by a later one that repeats it.

Only the last receipt of a unit repeats all. Those before it repeat at most `REPEATED` numbers: else a unit of thousands of
shards would write more receipts than tokens. Receipts of older stores repeat nothing, and are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from tokpress.records import SHARDS, TRAIN, FileEntry, Receipt, shard_name
from tokpress.storage.base import Storage, checksum
from tokpress.store.manifest import encode, find_record
from tokpress.threads import thread_pool

REPEATED = 64  # numbers
_READS_AT_ONCE = 32  # of a bucket, which answers each of them late
_OF_TRAIN = re.compile(rf"{SHARDS}/{TRAIN}-(\d+)-(\d+)\.json")

Receipts = dict[int, list[Receipt]]  # by unit, in order; of each number `train` last


class StoredReceipt(Receipt, frozen=True, kw_only=True, gc=False):
    """A receipt as it is written."""

    earlier: tuple[Receipt, ...] = ()  # of its unit, in order


def as_stored(receipt: Receipt, earlier: Sequence[Receipt]) -> StoredReceipt:
    """`earlier` are all that its unit has already, in order."""
    is_last = receipt.next_input is None
    first = 0 if is_last else receipt.number - receipt.number % REPEATED
    repeated = tuple(each for each in earlier if each.number >= first) if receipt.split == TRAIN else ()
    return StoredReceipt(**msgspec.structs.asdict(receipt), earlier=repeated)


def receipt_keys(storage: Storage) -> list[str]:
    return [key for key in storage.list(SHARDS) if key.endswith(".json")]


def read_receipts(storage: Storage, units: Iterable[int] | None = None) -> Receipts:
    """Of all units that were begun, or of those among these."""
    with thread_pool(1 if storage.has_lock else _READS_AT_ONCE, "receipts") as pool:
        if units is not None:
            found = {unit: pool.submit(unit_receipts, storage, unit) for unit in units}
        else:
            keys = set(receipt_keys(storage))
            last: dict[int, int] = {}
            for match in filter(None, map(_OF_TRAIN.fullmatch, keys)):
                unit, number = int(match[1]), int(match[2])
                last[unit] = max(number, last.get(unit, number))
            found = {unit: pool.submit(_of_unit, storage, unit, last[unit], keys.__contains__) for unit in sorted(last)}
        return {unit: known for unit, reading in found.items() if (known := reading.result())}


def unit_receipts(storage: Storage, unit: int) -> list[Receipt]:
    """The receipts of one unit, in order. Asks for their names: to list a store of 100,000 shards takes its time."""
    first = _find_receipt(storage, _key(TRAIN, unit, 0))
    if first is None:
        return []
    last = 0
    while first.next_input is not None and storage.exists(_key(TRAIN, unit, last + 1)):
        last += 1
    return _of_unit(storage, unit, last, storage.exists, first if last == 0 else None)


def _of_unit(
    storage: Storage, unit: int, last: int, exists: Callable[[str], bool], read: StoredReceipt | None = None
) -> list[Receipt]:
    """From the last number down: what a receipt repeats need not be read. `read` is the last, if it was read already."""
    found: dict[tuple[str, int], Receipt] = {}
    for number in range(last, -1, -1):
        if (TRAIN, number) not in found:
            receipt = read or _find_receipt(storage, _key(TRAIN, unit, number))
            if receipt is None:
                continue
            found[TRAIN, number] = _alone(receipt)
            found |= {(each.split, each.number): each for each in receipt.earlier if each.unit == unit}
        for split in found[TRAIN, number].beside:
            if (split, number) not in found and (beside := _find_receipt(storage, _key(split, unit, number))):
                found[split, number] = _alone(beside)
    return _in_order({which: receipt for which, receipt in found.items() if exists(receipt.path("json"))})


def _key(split: str, unit: int, number: int) -> str:
    return f"{SHARDS}/{shard_name(split, unit, number)}.json"


def _find_receipt(storage: Storage, key: str) -> StoredReceipt | None:
    """One that cannot be read, or speaks for another shard, is as good as none: what it stood for is written again."""
    receipt = find_record(storage, key, StoredReceipt)
    return receipt if receipt is not None and receipt.path("json") == key else None


def _alone(receipt: StoredReceipt) -> Receipt:
    return Receipt(**{name: getattr(receipt, name) for name in Receipt.__struct_fields__})


def _in_order(found: dict[tuple[str, int], Receipt]) -> list[Receipt]:
    """Number by number, `train` last, up to the first number for which it is missing: what comes after is written again."""
    receipts: list[Receipt] = []
    number = 0
    while (last := found.get((TRAIN, number))) is not None and all((split, number) in found for split in last.beside):
        receipts += [*(found[split, number] for split in last.beside), last]
        number += 1
    return receipts


def stored_forms(shards: Iterable[Receipt]) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """The key of each of these receipts and its bytes: with those of its unit before it, or, of an older store, alone."""
    known: list[Receipt] = []
    for receipt in sorted(shards, key=lambda each: (each.unit, each.number, each.split == TRAIN, each.split)):
        if known and known[-1].unit != receipt.unit:
            known = []
        yield receipt.path("json"), (encode(as_stored(receipt, known)), encode(receipt))
        known.append(receipt)


def receipt_files(storage: Storage, shards: Iterable[Receipt]) -> dict[str, FileEntry]:
    """The files of all these receipts, for the manifest. One whose bytes are not what they were is written again.

    Where several machines can write they are told by their sizes: a bucket answers each read late, and keeps its bytes.
    """
    sizes = {key: stat.size for key, stat in storage.list_stats(SHARDS)} if not storage.has_lock else {}
    found: dict[str, FileEntry] = {}
    for key, forms in stored_forms(shards):
        data = next((form for form in forms if len(form) == sizes.get(key)), None) or _there(storage, key)
        if data not in forms:
            data = forms[0]
            storage.put(key, data)
        found[key] = FileEntry(len(data), checksum(data))
    return dict(sorted(found.items()))


def _there(storage: Storage, key: str) -> bytes:
    try:
        return storage.read(key)
    except FileNotFoundError:
        return b""
