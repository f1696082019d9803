"""Objects that are created once, by whoever comes first.

In: a key and what should stand there. Out: what does. A refused creation has many causes: another writer was first, an
acknowledgement got lost and it was this one, or (on object stores) two came at the same moment and the object is not even
there. So it is looked at: what is equal is success, what is absent is tried again, and what differs is for the caller. So it
is where the creation succeeded, on a store without a lock: there are servers that let two succeed.
"""

from __future__ import annotations

from contextlib import suppress

from tokpress.storage.base import Storage

_TRIES = 10


def create_or_read(storage: Storage, key: str, data: bytes) -> bytes:
    """Creates an object, unless there is one; gives the bytes that stand there now."""
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            storage.put(key, data, if_absent=True)
            if storage.has_lock:
                return data
        with suppress(FileNotFoundError):
            return storage.read(key)
    raise OSError(f"{storage.location(key)} can be neither created nor read")
