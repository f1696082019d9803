"""A worker's whole life: load, then one task after the other until the pipe ends.

In: the descriptor of a pipe, and over it a `Start` and orders. Out: what the worker says, over the same pipe.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from multiprocessing.connection import Connection

from tokpress.errors import TokpressError
from tokpress.run.job import Encoded, Failed, Preload, Prepare, Settings, Settle, Start, Task
from tokpress.storage.local import SyncFailed

SYNC_FAILED = 74  # exit code of a worker whose disk refused to sync


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the coordinator decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.unraisablehook = _end_if_told
    sys.meta_path.insert(0, _NoPandas())
    pipe = Connection(int(sys.argv[1]))
    orders = _orders(pipe)
    try:
        for start in orders:
            if isinstance(start, Start):
                _serve(start, orders, pipe)
    except BrokenPipeError:
        return  # the coordinator is gone
    except SyncFailed:
        sys.exit(SYNC_FAILED)  # what was not written is written again, by a fresh worker
    except (TokpressError, OSError) as error:
        pipe.send(Failed(error))


def _serve(start: Start, orders: Iterator[object], pipe: Connection) -> None:
    if start.cpus:
        os.sched_setaffinity(0, start.cpus)
    from tokpress.run.worker import Worker

    worker = Worker(start.job)
    for order in orders:
        match order:
            case Prepare(part, attempt):
                pipe.send(worker.prepare(part, attempt))
            case Preload():
                worker.preload()
            case Settings() as settings:
                worker.configure(settings)
            case Task() as task:
                worker.run(task, pipe.send)
                pipe.send(Encoded(task.unit))
            case Settle():
                worker.settle(pipe.send)


class _NoPandas(MetaPathFinder):
    """pyarrow imports pandas, where there is one, only to ask whether something is one of its types: a sixth of a second of
    each worker's start."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _end_if_told(unraisable: sys.UnraisableHookArgs) -> None:
    """The signal to end may come while Python runs code from which nothing can be raised."""
    if isinstance(unraisable.exc_value, SystemExit):
        os._exit(0)
    sys.__unraisablehook__(unraisable)


def _orders(pipe: Connection) -> Iterator[object]:
    """What the coordinator asks for, until it is gone."""
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        yield order


if __name__ == "__main__":
    main()
