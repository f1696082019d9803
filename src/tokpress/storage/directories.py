"""Directories as descriptors, so that no link is followed where something is written.

In: a directory that a user named, which may be a link, and names below it, which may not. Out: a descriptor; what is opened,
renamed or removed relative to it stays in that directory, whatever is put in its place meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WHY = "is a link, and tokpress writes through none. Remove it; only --out itself may be one"


class LinkRefused(OSError):  # noqa: N818 - reads as what happened
    """Something that would lead elsewhere stands where tokpress writes."""

    def __init__(self, path: Path | str, why: str = _WHY) -> None:
        super().__init__(errno.ELOOP, why, str(path))


@contextmanager
def opened(system: Any, root: Path, names: Sequence[str]) -> Iterator[int]:
    """The directory `root/names...`. An error names the whole path, not only what is below the descriptor."""
    descriptor, path = system.open(root, _DIRECTORY), root
    try:
        for name in names:
            path = path / name
            try:
                inner = system.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                refuse_link(name, descriptor, path)
                error.filename = str(path)
                raise
            system.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        system.close(descriptor)


def refuse_link(name: str, directory: int, path: Path) -> None:
    """Raises LinkRefused if there is a link of this name."""
    try:
        found = os.lstat(name, dir_fd=directory)
    except OSError:
        return
    if S_ISLNK(found.st_mode):
        raise LinkRefused(path)


def open_own(system: Any, name: str, directory: int, flags: int, path: Path) -> int:
    """Opens a file to write into what is there: one that has this name alone, or it would be somebody else's, too."""
    try:
        descriptor: int = system.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    except OSError as error:
        refuse_link(name, directory, path)
        error.filename = str(path)
        raise
    found = os.fstat(descriptor)
    if S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    system.close(descriptor)
    if S_ISREG(found.st_mode):
        raise LinkRefused(path, "is a hard link of another file, which tokpress would change. Remove it")
    raise LinkRefused(path, "is no ordinary file, nor a link that may be followed. Remove it")
