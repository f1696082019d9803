"""Directories that tokpress wrote: a store, a pack, an export, finished or not.

In: a directory. Out: whether it is one. Their JSON and text files are no inputs, wherever they stand; a store may well be
made inside the directory that it is made of.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_HEADS = {  # how the record begins that makes a directory one of ours: they have one way to become bytes
    "plan.json": rb'\{\s*"format(_version": \d+,\s*"inputs": \[|": "tokpress-)',
    "manifest.json": rb'\{\s*"format": "tokpress-store"',
    "metadata.json": rb'\{\s*"format": "tokpress-export"',
    "index.json": rb'\{\s*"format": "tokpress-pack"',
}
_HEAD_BYTES = 100


class LeftOut:
    """What a walk or a glob passes over: what tokpress wrote, and the directory that it is about to write."""

    def __init__(self, out: str | os.PathLike[str] | None) -> None:
        self._out = None if out is None else Path(out).resolve()
        self._known: dict[Path, bool] = {}  # a glob may have a million matches in a few directories

    def directory(self, path: Path) -> bool:
        return path.resolve() == self._out or is_ours(path)

    def match(self, path: Path) -> bool:
        """Whether a file stands in such a directory, however deep."""
        return any(self._remembered(parent) for parent in path.absolute().parents)

    def _remembered(self, directory: Path) -> bool:
        if directory not in self._known:
            self._known[directory] = self.directory(directory)
        return self._known[directory]


def is_ours(directory: Path) -> bool:
    return any(_begins(directory / name, head) for name, head in _HEADS.items())


def _begins(path: Path, head: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return re.match(head, file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False
