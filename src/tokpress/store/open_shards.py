"""The shards that a process has open: not too many of them.

In: indices. Out: shards, opened when they are first asked for. A store may have a hundred thousand shards, and a process
some 65,000 maps (`vm.max_map_count`), which other libraries use as well. So of all stores that a process reads only the
shards that were opened last stay open. Who still holds an array of one that was let go can go on reading it: its memory is
unmapped when the last view on it is gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

from tokpress.storage.lost_pages import num_maps

MOST_MAPS = 6144  # of a process
_FEWEST_OPEN = 256  # shards that stay open even so: whoever holds many documents has maps that cannot be let go

Opened = TypeVar("Opened")


class OpenShards(Generic[Opened]):
    """What one reader has open, by a shard's index. Any number of threads may use it."""

    def __init__(self) -> None:
        self._opened: dict[int, Opened] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def get(self, index: int, open_shard: Callable[[int], Opened]) -> Opened:
        shard = self._opened.get(index)
        if shard is None:
            with self._lock:
                shard = self._opened.get(index)  # opened by another thread, meanwhile
                if shard is None:
                    shard = self._opened[index] = open_shard(index)
                    _in_order.append((ref(self), index))
            _let_go()
        return shard

    def all(self) -> list[Opened]:
        return list(self._opened.values())

    def let_go(self, index: int) -> None:
        self._opened.pop(index, None)


# Of the whole process, whose limit it is; the oldest first. Those of readers that are gone are let go already.
_in_order: deque[tuple[ReferenceType[OpenShards[Any]], int]] = deque()


def _let_go() -> None:
    while len(_in_order) > (_FEWEST_OPEN if num_maps() > MOST_MAPS else MOST_MAPS):
        try:
            reader, index = _in_order.popleft()
        except IndexError:  # by another thread, meanwhile
            return
        if (shards := reader()) is not None:
            shards.let_go(index)
