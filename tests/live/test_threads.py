"""A crew of threads: whoever of them fails, the caller is told, and the crew goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tokpress.batches import TokenBatch
from tokpress.engines.bytes import BytesEngine
from tokpress.errors import TokenizerError
from tokpress.live.threads import ThreadCrew
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

PARTS = [["a"], ["b"], ["c"]]


class FailsElsewhere(BytesEngine):
    """Fails in any thread but the one that it was made in, which waits for that."""

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        super().__init__(files, policy)
        self._home, self.failed = threading.current_thread(), threading.Event()
        self.fails = True

    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch:
        if self.fails and threading.current_thread() is not self._home:
            self.failed.set()
            raise TokenizerError("this thread cannot")
        assert not self.fails or self.failed.wait(60)
        return super().encode_strings(documents, threads=threads)


@pytest.fixture
def engine() -> FailsElsewhere:
    return FailsElsewhere(TokenizerFiles("bytes", {}), "text")


@pytest.fixture
def crew(engine: FailsElsewhere) -> Iterator[ThreadCrew]:
    crew = ThreadCrew(engine, 2)
    yield crew
    crew.close()


def test_the_error_of_a_helper_is_the_caller_s(crew: ThreadCrew, engine: FailsElsewhere) -> None:
    with pytest.raises(TokenizerError, match="this thread cannot"):
        crew.encode(PARTS, len)
    engine.fails = False
    assert crew.encode(PARTS, lambda tokens: tokens.ids.tolist()) == [[97], [98], [99]]
