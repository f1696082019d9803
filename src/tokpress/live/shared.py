"""Memory that two processes share and that has no name.

In: a size. Out: a map. It is a file without a directory entry, known by its descriptor alone: when the last process that
has it is gone, killed or not, the memory is, too. Nothing can be left behind in /dev/shm.
"""

from __future__ import annotations

import mmap
import os


class SharedMemory:
    """Grows as it is needed, on either side; each side maps it for itself."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("tokpress") if descriptor is None else descriptor
        self._map: mmap.mmap | None = None

    def room(self, size: int) -> mmap.mmap:
        """At least `size` bytes. What was there stays; a map that was given out before stays valid, but is not this one."""
        if self._map is None or len(self._map) < size:
            there = os.fstat(self.descriptor).st_size
            if there < size:
                there = max(size, 2 * there, mmap.PAGESIZE)
                os.ftruncate(self.descriptor, there)
            self._map = mmap.mmap(self.descriptor, there)
        return self._map

    def close(self) -> None:
        """Called again it does nothing: the number may be another file's by then."""
        self._map = None  # unmapped when the last array on it is gone
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
