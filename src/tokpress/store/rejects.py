"""The rejected records of a store, one after the other.

In: `rejects/*.jsonl`. Out: `RejectView`s in the order of the inputs. A file is opened when it is come to, and read line by
line: a store may have as many rejects as documents.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice

import msgspec

from tokpress.errors import StoreError
from tokpress.records import REJECTS, TRAIN, Manifest, Receipt, Reject, rejects_name
from tokpress.storage.base import Storage
from tokpress.store.manifest import verify_hint


class RejectView(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was read but not written, and why."""

    number: int  # in the list of all rejects, from 0
    reason: str  # a code, like bad-json
    detail: str
    source: str  # path of the input
    position: int  # byte offset of the record (in the decompressed stream), or row number
    line: int | None  # counted from 1, where the input has lines
    preview: str  # the record's first bytes, made printable
    records: int  # more than one where a damaged block hides a known number of records
    unit: int
    shard: int  # number of the shard in its unit before whose end it was met


def read_rejects(
    storage: Storage, manifest: Manifest, *, reason: str | None = None, offset: int = 0, limit: int | None = None
) -> Iterator[RejectView]:
    """Those of one reason, or all; `offset` and `limit` count the ones that are asked for. Every split's are listed here:
    a record that was rejected belongs to none."""
    if offset < 0 or (limit is not None and limit < 0):
        raise ValueError(f"offset={offset}, limit={limit}: neither can be below 0")
    return islice(_all(storage, manifest, reason), offset, None if limit is None else offset + limit)


def _all(storage: Storage, manifest: Manifest, reason: str | None) -> Iterator[RejectView]:
    number = 0
    for receipt in manifest.splits[TRAIN].shards:
        if not receipt.rejects:
            continue
        for reject in _file(storage, receipt):
            if reason is None or reject.reason == reason:
                yield _view(reject, number, receipt)
            number += 1


def _file(storage: Storage, receipt: Receipt) -> Iterator[Reject]:
    key = f"{REJECTS}/{rejects_name(receipt.unit, receipt.number)}"
    decoder = msgspec.json.Decoder(Reject)
    try:
        with storage.open(key) as file:
            for line in io.BufferedReader(file):
                yield decoder.decode(line)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{storage.location(key)} cannot be read: {error}. {verify_hint(storage)}") from error


def _view(reject: Reject, number: int, receipt: Receipt) -> RejectView:
    return RejectView(
        number=number,
        reason=reject.reason,
        detail=reject.detail,
        source=reject.source,
        position=reject.position,
        line=reject.line,
        preview=reject.preview,
        records=reject.records,
        unit=receipt.unit,
        shard=receipt.number,
    )
