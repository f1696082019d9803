"""Receipts of an earlier run -> those whose files are still as they say.

In: the receipts of an unfinished store. Out: what of them can be gone on from, and the shards that are lost. Sizes are
compared always, checksums of as much as is cheap (`sampled`), of everything, or of nothing. A receipt that does not fit is
removed before anything else is done: what it spoke for is written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import xxhash

from tokpress.config import ReceiptChoice
from tokpress.records import REJECTS, SHARDS, TRAIN, Receipt, Reject, rejects_name
from tokpress.storage.base import Storage
from tokpress.store.receipts import Receipts

CHEAP_BYTES = 10**9  # read and hashed in about a second

_Shards = tuple[Receipt, ...]  # of one unit and number, one a split, `train` last: they stand or fall together


def fitting(storage: Storage, receipts: Receipts, how: ReceiptChoice) -> tuple[Receipts, list[str]]:
    """The receipts that can be gone on from, and the names of shards that do not fit theirs."""
    sizes = {key: stat.size for prefix in (SHARDS, REJECTS) for key, stat in storage.list_stats(prefix)}
    shards = list(_by_number(receipts))
    lost = {shard.name for together in shards for shard in together if not _has_its_sizes(shard, sizes)}
    for shard in _to_hash([shard for together in shards for shard in together if shard.name not in lost], how):
        if not _has_its_bytes(storage, shard):
            lost.add(shard.name)
    broken = [together for together in shards if any(shard.name in lost for shard in together)]
    for together in broken:
        for shard in reversed(together):  # `train`, which vouches for the others, first
            storage.delete(shard.path("json"))
    if broken:
        storage.barrier(SHARDS)
    first_lost: dict[int, int] = {}
    for together in broken:
        first_lost.setdefault(together[-1].unit, together[-1].number)
    kept = {
        unit: [receipt for receipt in known if receipt.number < first_lost.get(unit, receipt.number + 1)]
        for unit, known in receipts.items()
    }
    return {unit: known for unit, known in kept.items() if known}, sorted(lost)


def _by_number(receipts: Receipts) -> Iterator[_Shards]:
    """In order of units and numbers."""
    for known in receipts.values():
        together: list[Receipt] = []
        for receipt in known:
            together.append(receipt)
            if receipt.split == TRAIN:
                yield tuple(together)
                together = []


def _has_its_sizes(shard: Receipt, sizes: dict[str, int]) -> bool:
    if any(sizes.get(shard.path(extension)) != entry.bytes for extension, entry in shard.files.items()):
        return False
    return not shard.rejects or bool(sizes.get(_rejects(shard)))


def _to_hash(shards: Sequence[Receipt], how: ReceiptChoice) -> Iterator[Receipt]:
    """All, none, or as many as are cheap, spread over the store by a hash of their names."""
    if how == "all":
        yield from shards
    elif how == "sampled":
        left = CHEAP_BYTES
        for shard in sorted(shards, key=lambda shard: xxhash.xxh3_64_intdigest(shard.name.encode())):
            left -= sum(entry.bytes for entry in shard.files.values())
            if left >= 0:
                yield shard


def _has_its_bytes(storage: Storage, shard: Receipt) -> bool:
    if any(storage.checksum(shard.path(extension)) != entry.xxh3 for extension, entry in shard.files.items()):
        return False
    return not shard.rejects or _rejected(storage.read(_rejects(shard))) == shard.counts.rejected


def _rejects(shard: Receipt) -> str:
    return f"{REJECTS}/{rejects_name(shard.unit, shard.number)}"


def _rejected(lines: bytes) -> int:
    """How many records a list of rejects accounts for; -1 if it cannot be read, or its end is missing."""
    if not lines.endswith(b"\n"):
        return -1
    try:
        return sum(reject.records for reject in msgspec.json.Decoder(Reject).decode_lines(lines))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
