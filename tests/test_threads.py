"""Parts of a job in threads: after a failure no more of them begin."""

from __future__ import annotations

import threading

import pytest

from tokpress.threads import thread_pool


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_waits_does_not_begin_after_a_failure(error: type[BaseException]) -> None:
    begun: list[int] = []
    failed = threading.Event()

    def part(k: int) -> None:
        begun.append(k)
        assert failed.wait(5)  # is still under way when the job fails

    def fail() -> None:
        with thread_pool(1, "part") as pool:
            futures = [pool.submit(part, k) for k in range(5)]
            futures[-1].add_done_callback(lambda _: failed.set())  # cancelled: only then may the first one end
            raise error

    with pytest.raises(error):
        fail()
    assert begun in ([0], [])
