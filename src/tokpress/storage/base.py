"""The contract of a storage.

In: keys, which are paths with `/` below the storage's root; `""` is the root. Out: objects that are whole or not there.

An object comes into being in one step, under its final key, when all of its bytes have arrived; two writers of one key
never see each other's bytes. What survives a loss of power is what a `barrier` has covered: object stores need none, a
local disk has to be told. Failures are `OSError`s; an object that is not there is a `FileNotFoundError`.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class Stat:
    size: int
    version: str  # another one when the object was replaced or changed


class WriteAgain(OSError):  # noqa: N818 - reads as what is to be done
    """What was written does not count, and has to be written again from the last receipt on."""


class Upload(ABC):
    """An object being written. Counts and hashes what goes in; exists under its key from `commit` on.

    With `with`, it is committed if the block was left without an error, and else leaves nothing behind.
    """

    closed = False  # asked for by pyarrow, which writes into it as into a file

    def __init__(self, key: str) -> None:
        self.key = key
        self.bytes = 0
        self._hash = xxhash.xxh3_64()

    def write(self, data: Any) -> None:
        """Appends anything with the buffer protocol."""
        if self.closed:  # the number of its descriptor may be another file's by now
            raise ValueError(f"{self.key} is closed: nothing more can be written to it")
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.bytes += len(view)
        self._write(view)

    @property
    def checksum(self) -> str:
        return self._hash.hexdigest()

    @abstractmethod
    def _write(self, view: memoryview) -> None: ...

    @abstractmethod
    def commit(self) -> None:
        """Makes the object exist, in the place of an older one. A barrier is for the caller, once for many objects."""

    @abstractmethod
    def abort(self) -> None:
        """Leaves nothing behind. Changes nothing after a commit."""

    def __enter__(self) -> Upload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise


class Storage(ABC):
    """Objects below one root. Instances are cheap, hold no handles and can be sent to other processes as their `url`."""

    url: str  # what a user would type to name the root
    has_lock = False  # whether `lock` keeps a second writer out; else what must not be replaced is created only

    def __str__(self) -> str:
        return self.url

    def location(self, key: str) -> str:
        """An object as messages name it."""
        return f"{self.url}/{key}" if key else self.url

    @abstractmethod
    def below(self, prefix: str) -> Storage:
        """The objects under a prefix, as a storage of their own."""

    @abstractmethod
    def present(self) -> bool:
        """Whether there is anything: a directory, objects under a prefix."""

    @abstractmethod
    def stat(self, key: str) -> Stat | None:
        """None: there is no such object."""

    @abstractmethod
    def list(self, prefix: str = "") -> list[str]:
        """The keys of all objects under a prefix, however deep, sorted. What is still being written is not among them."""

    @abstractmethod
    def children(self, prefix: str = "") -> Sequence[str]:
        """The names directly under a prefix, of objects and of deeper prefixes, sorted."""

    @abstractmethod
    def open(self, key: str) -> pa.NativeFile:
        """An object for reading, at any position."""

    @abstractmethod
    def create(self, key: str) -> Upload:
        """A new object. Every attempt has a temporary place of its own, so that two writers of one key do no harm."""

    @abstractmethod
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """A small object, whole, and durable when this returns. `if_absent`: raises FileExistsError if there is one."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Removes an object, if it is there. A barrier is for the caller."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Removes all objects under a prefix, if there are any. A barrier is for the caller."""

    @abstractmethod
    def local(self, key: str) -> Path:
        """The object as a file of this machine: itself, or a copy."""

    def obstacle(self) -> str | None:
        """What stands at the root that nothing can be written into, if anything does."""
        return None

    def links(self, *prefixes: str) -> Sequence[str]:  # noqa: ARG002
        """The names directly under these prefixes that lead elsewhere, where a storage can have such."""
        return ()

    def exists(self, key: str) -> bool:
        return self.stat(key) is not None

    def size(self, key: str) -> int:
        """Raises FileNotFoundError if there is no such object."""
        found = self.stat(key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self.location(key))
        return found.size

    def list_stats(self, prefix: str = "") -> Sequence[tuple[str, Stat]]:
        """As `list`, with what `stat` would say of each."""
        found = ((key, self.stat(key)) for key in self.list(prefix))
        return [(key, stat) for key, stat in found if stat is not None]

    def read(self, key: str) -> bytes:
        with self.open(key) as file:
            data: bytes = file.read()
            return data

    def checksum(self, key: str) -> str:
        """Of all bytes of an object."""
        digest = xxhash.xxh3_64()
        with self.open(key) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def prepare(self, *prefixes: str) -> None:  # noqa: B027 - nothing to do, unless a storage has directories
        """Makes room for objects under these prefixes: directories, where there are any."""

    def barrier(self, *prefixes: str) -> None:  # noqa: B027 - nothing to do, unless a storage has directories
        """All that was committed, removed or prepared directly under these prefixes survives a loss of power."""

    def anchor(self) -> None:  # noqa: B027
        """The root itself, which may be new, survives a loss of power."""

    def delete_abandoned(self, *prefixes: str) -> None:  # noqa: B027 - nothing to do, unless a storage has directories
        """Removes what attempts left directly under these prefixes that died before they could commit or abort."""

    def keeps_conditions(self) -> bool:
        """Whether `put(if_absent=True)` holds: some servers take the condition and ignore it. Asked of the store itself."""
        return True

    def lock(self) -> AbstractContextManager[object]:
        """Keeps a second writer out, where a storage can; where it cannot, two of them do no harm."""
        return nullcontext()


def checksum(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def parent_of(key: str) -> str:
    """The prefix that an object stands directly under."""
    return key.rpartition("/")[0]
