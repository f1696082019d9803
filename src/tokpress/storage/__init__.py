"""Where bytes are: the one package that touches a store's, a pack's or an export's files.

In: keys (`str`, never `Path`: a `Path` makes `s3://b` into `s3:/b`) and bytes. Out: objects that are whole or not there.

    base         the contract: Storage, Upload, Stat
    local        a directory of this machine; links, preallocation and renames of directories are its own
    lock         one writer a directory, held by the kernel
    mapped       a local file as memory
    memory       a dict, for tests and for trying things out
    conformance  the promises, as a suite that any storage can be put through
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokpress.storage.local import LocalStorage

if TYPE_CHECKING:
    from tokpress.storage.base import Storage


def open_storage(place: str | os.PathLike[str] | Storage) -> Storage:
    """What a user named, as a storage."""
    return LocalStorage(place) if isinstance(place, str | os.PathLike) else place
