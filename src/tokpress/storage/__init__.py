"""Where bytes are: the one package that touches a store's, a pack's or an export's files.

In: keys (`str`, never `Path`: a `Path` makes `s3://b` into `s3:/b`) and bytes. Out: objects that are whole or not there.

    base         the contract: Storage, Upload, Stat
    local        a directory of this machine; links, preallocation and renames of directories are its own
    directories  directories as descriptors: no link is followed where something is written
    lock         one writer a directory, held by the kernel
    mapped       a local file as memory
    arrow_file   an object that pyarrow writes
    lost_pages   mapped memory that is gone: an error instead of a dead process
    once         objects that are created once, by whoever comes first
    fenced       a storage that can be closed to those who write through it
    guarded      a bucket as one run writes it
    memory       a dict, for tests and for trying things out
    object_store a bucket (S3, Google, Azure), or an https server to read from
    hub          a dataset on the Hugging Face Hub, at one commit
    hub_store    a store in such a dataset, to read
    hub_upload   files as commits of such a dataset
    credentials  settings of the clouds that the client library does not find by itself
    requests     one request: limited, tried again, told in plain words
    ranged       an object as a file, read a few ranges ahead
    spool        an object on its way to a bucket
    pages        parts of remote objects as memory, in a bounded cache that processes share
    copies       copies of remote objects on this machine, checked and bounded
    conformance  the promises, as a suite that any storage can be put through
"""

from __future__ import annotations

import os

from tokpress.storage.base import Storage
from tokpress.storage.hub_store import HubStorage, is_hub
from tokpress.storage.local import LocalStorage
from tokpress.storage.object_store import ObjectStorage, is_remote


def open_storage(place: str | os.PathLike[str] | Storage) -> Storage:
    """What a user named, as a storage."""
    if isinstance(place, str) and is_hub(place):
        return HubStorage(place)
    if isinstance(place, str) and is_remote(place):
        return ObjectStorage(place)
    if isinstance(place, str | os.PathLike):
        return LocalStorage(place)
    if not isinstance(place, Storage):
        raise TypeError(f"{place!r} is a {type(place).__name__}, no place of a store. Give its path.")
    return place


def open_run(storage: Storage, run: str) -> Storage:
    """To write into a store as one of several machines, as long as the run goes on."""
    if isinstance(storage, ObjectStorage):
        from tokpress.storage.guarded import GuardedStorage

        return GuardedStorage(storage, run)
    if not isinstance(storage, LocalStorage):
        return storage
    from tokpress.storage.fenced import FencedStorage

    return FencedStorage(storage, f"run/{run}")
