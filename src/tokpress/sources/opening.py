"""The one way to open an input.

In: an `Input`. Out: its bytes as they are stored. A file is opened as often as it is asked for; standard input is one
stream, of which everybody gets the rest, and the beginning can be looked at without taking it away.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tokpress.errors import InputError
from tokpress.records import STDIN, Input
from tokpress.sources.remote import RemoteFile, RemoteInput
from tokpress.storage.lost_pages import InputPagesLost
from tokpress.storage.mapped import map_bytes
from tokpress.storage.requests import ObjectChanged

_BUFFER_BYTES = 64 * 1024
_LET_IT_REST = "Let it rest, then build anew with --overwrite."


def open_input(source: Input, *, mapped: bool = False) -> pa.NativeFile:
    """A file, to be read at any position. `mapped`: as memory, so that what is not looked at is not read."""
    if source.is_remote:
        return RemoteInput(RemoteFile(source), "r")
    if mapped:
        return pa.BufferReader(pa.py_buffer(map_bytes(Path(source.path), InputPagesLost, _LET_IT_REST)))
    return pa.OSFile(source.path)


def buffered(source: Input) -> AbstractContextManager[Any]:
    """Any input, standard input too, to be read in small pieces from its start on."""
    if source.path == STDIN:
        return nullcontext(standard_input(sys.stdin.buffer))
    return io.BufferedReader(RemoteFile(source) if source.is_remote else open_input(source), _BUFFER_BYTES)


def cannot_read(source: Input, error: OSError) -> InputError:
    """What is told of an input that cannot be read."""
    if isinstance(error, ObjectChanged):
        return changed(source)
    why = os.strerror(error.errno) if error.errno and not source.is_remote else error.strerror or error
    return InputError(f"cannot read {source.path}: {why}. Mend that and run the same command again.")


def changed(source: Input) -> InputError:
    return InputError(f"{source.path} was changed while it was being read. {_LET_IT_REST}")


class PeekableInput:
    """Standard input, with a look at its head that takes nothing away: a pipe can be read only once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._head = b""

    def peek(self, size: int) -> bytes:
        if len(self._head) < size:
            self._head += self._file.read(size - len(self._head))
        return self._head[:size]

    def read(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._file.read(size - len(head))

    def seek(self, position: int) -> None:
        raise InputError(f"standard input cannot be read from byte {position} on: it can only be read once, in order.")


def is_inherited(file: IO[str] | None) -> bool:
    """Whether a process that is started here would read the same as this one, of its standard input."""
    try:
        return file is not None and file.fileno() == 0
    except (OSError, ValueError, AttributeError):  # closed, or not a file of the system's
        return False


@cache
def standard_input(file: IO[bytes]) -> PeekableInput:
    """The one reader of a pipe: what one caller peeked at, another one reads."""
    return PeekableInput(file)
