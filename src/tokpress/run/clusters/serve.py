"""A worker's whole life: load, then one order after the other until the pipe ends.

In: the descriptors of a pipe and of the host's gate, and over the pipe a `Job` and orders. Out: what the worker says, over
the same pipe.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

from tokpress.errors import TokpressError
from tokpress.run.messages import Failed, Job, Order, Reply, decode_order, encode
from tokpress.storage import open_storage
from tokpress.storage.base import WriteAgain

PANICKED = 70  # exit code of a worker in which a library written in Rust gave up; it has said why itself
SYNC_FAILED = 74  # exit code of a worker whose disk refused to sync


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the coordinator decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.unraisablehook = _end_if_told
    pipe = Connection(int(sys.argv[1]))

    def say(reply: Reply) -> None:
        try:
            pipe.send_bytes(encode(reply))
        except ConnectionError as error:  # a reset, where something was not read any more
            raise BrokenPipeError("the coordinator is gone") from error

    orders = _orders(pipe)
    try:
        for job in orders:
            if isinstance(job, Job):
                _serve(job, orders, say, gate=int(sys.argv[2]))
    except BrokenPipeError:
        return  # the coordinator is gone
    except WriteAgain:
        sys.exit(SYNC_FAILED)  # what was not written is written again, by a fresh worker
    except (TokpressError, OSError) as error:
        with suppress(BrokenPipeError):
            say(Failed.of(error))
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # nothing of the library can be trusted after it
            sys.exit(PANICKED)
        raise


def _serve(job: Job, orders: Iterator[Order], say: Callable[[Reply], None], *, gate: int) -> None:
    if job.cpus:
        os.sched_setaffinity(0, job.cpus)
    from tokpress.run.worker import Worker  # and with it all of the engines: after the pipe is listened to

    worker = Worker(job, open_storage(job.url), gate=gate)
    for order in orders:
        worker.obey(order, say)


def _end_if_told(unraisable: sys.UnraisableHookArgs) -> None:
    """The signal to end may come while Python runs code from which nothing can be raised."""
    if isinstance(unraisable.exc_value, SystemExit):
        os._exit(0)
    sys.__unraisablehook__(unraisable)


def _orders(pipe: Connection) -> Iterator[Order]:
    """What the coordinator asks for, until it is gone."""
    while True:
        try:
            order = decode_order(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            return
        yield order


if __name__ == "__main__":
    main()
