"""A pool of threads for parts of a job, of which none begins once one has failed.

In: how many threads. Out: an executor. Ctrl-C counts as a failure: parts that are under way end, others do not begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(threads, thread_name_prefix=name) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
