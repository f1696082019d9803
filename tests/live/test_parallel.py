"""Parallel tokenizing: the library's own ids, in order, whatever the batch, the process and the accident."""

from __future__ import annotations

import logging
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from engines import samples
from engines.fuzz import texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress import ParallelTokenizer
from tokpress.errors import TokenizerError, UsageError
from tokpress.live import parallel

from .conftest import TEXTS, RunScript, eager

pytestmark = pytest.mark.timeout(150)
NAMES = ["mistral-v7-real", "sp-unigram-unk-bare-nmt_nfkc", "cl100k", "wordpiece", "qwen2-ranks", "bytes"]
batches = st.lists(texts(["<s>", "</s>", "<|endoftext|>"]), max_size=12)


@pytest.fixture(scope="module", params=NAMES)
def named(request: pytest.FixtureRequest, spec_of: Callable[[str], str]) -> Iterator[tuple[str, ParallelTokenizer]]:
    pattern = {"pattern": "qwen2"} if request.param.endswith("ranks") else {}
    with ParallelTokenizer(spec_of(request.param), workers=3, **pattern) as tokenizer:  # type: ignore[arg-type]
        yield request.param, eager(tokenizer)


def as_lists(rows: list[Any]) -> list[list[int]]:
    return [row.tolist() for row in rows]


class TestIds:
    @settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(batch=batches)
    def test_are_the_library_s_in_order(self, named: tuple[str, ParallelTokenizer], batch: list[str]) -> None:
        name, tokenizer = named
        assert as_lists(tokenizer(batch)) == [samples.oracle(name)(text) for text in batch]

    @pytest.mark.parametrize("name", ["cl100k", "mistral-v7-real"])
    def test_after_the_proof_as_well(self, spec_of: Callable[[str], str], name: str) -> None:
        with ParallelTokenizer(spec_of(name), workers=2) as tokenizer:
            tokenizer(["word " * 120_000])  # more than is compared before the fast engine is trusted
            assert tokenizer.engine.name in ("gigatoken", "native")
            assert as_lists(tokenizer(TEXTS)) == [samples.oracle(name)(text) for text in TEXTS]

    def test_of_nothing(self, pool: ParallelTokenizer) -> None:
        assert pool([]) == []
        assert as_lists(pool([""])) == [[]]

    def test_of_arrow_text_and_of_any_iterable(self, pool: ParallelTokenizer) -> None:
        for text in (pa.array(TEXTS), pa.array(TEXTS, pa.large_string()), pa.chunked_array([TEXTS[:5], TEXTS[5:]])):
            assert as_lists(pool(text)) == as_lists(pool(TEXTS))
        assert as_lists(pool(text for text in TEXTS)) == as_lists(pool(TEXTS))
        part = pa.array(TEXTS, pa.large_string())[3:9]
        assert as_lists(pool(part)) == as_lists(pool(TEXTS[3:9]))

    def test_with_bos_and_eos(self, spm: Path) -> None:
        with ParallelTokenizer(spm, bos=True, eos=True) as tokenizer:
            oracle = samples.oracle("mistral-v1-real")
            assert as_lists(tokenizer(TEXTS)) == [[1, *oracle(text), 2] for text in TEXTS]

    def test_from_several_threads_at_once(self, pool: ParallelTokenizer) -> None:
        expected = as_lists(pool(TEXTS))
        got: dict[int, list[list[int]]] = {}
        callers = [threading.Thread(target=lambda i=i: got.update({i: as_lists(pool(TEXTS))})) for i in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert got == dict.fromkeys(range(4), expected)


class TestShapes:
    TEXTS = ("a b c d", "", "e", "f g")

    @pytest.fixture
    def tokenizer(self) -> ParallelTokenizer:
        return ParallelTokenizer("bytes")

    def test_cut(self, tokenizer: ParallelTokenizer) -> None:
        assert as_lists(tokenizer(self.TEXTS, max_length=2)) == [[97, 32], [], [101], [102, 32]]

    def test_padded_to_a_length(self, tokenizer: ParallelTokenizer) -> None:
        rows = tokenizer(self.TEXTS, max_length=3, pad_id=0)
        assert as_lists(rows) == [[97, 32, 98], [0, 0, 0], [101, 0, 0], [102, 32, 103]]

    def test_padded_to_the_longest(self, tokenizer: ParallelTokenizer) -> None:
        assert as_lists(tokenizer(self.TEXTS[1:], pad_id=9)) == [[9, 9, 9], [101, 9, 9], [102, 32, 103]]
        assert tokenizer([], pad_id=9) == []

    def test_pairs(self, tokenizer: ParallelTokenizer) -> None:
        pairs = [(inputs.tolist(), targets.tolist()) for inputs, targets in tokenizer.pairs(self.TEXTS[1:])]
        assert pairs == [([], []), ([], []), ([102, 32], [32, 103])]

    def test_pairs_cut_and_padded(self, tokenizer: ParallelTokenizer) -> None:
        pairs = tokenizer.pairs(["abcdef", "a", "ab"], max_length=3, pad_id=0)
        shown = [(inputs.tolist(), targets.tolist()) for inputs, targets in pairs]
        assert shown == [([97, 98, 99], [98, 99, 100]), ([0, 0, 0], [-100] * 3), ([97, 0, 0], [98, -100, -100])]

    def test_dtype(self, tokenizer: ParallelTokenizer) -> None:
        assert {row.dtype for row in tokenizer(self.TEXTS)} == {np.dtype(np.int64)}
        assert {row.dtype for row in tokenizer(self.TEXTS, dtype=np.uint16, pad_id=1)} == {np.dtype(np.uint16)}

    def test_no_room_is_refused(self, tokenizer: ParallelTokenizer) -> None:
        with pytest.raises(UsageError, match="max_length=0"):
            tokenizer(["a"], max_length=0)


class TestBadTexts:
    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (None, "text 5 is no str but NoneType"),
            (b"bytes", "text 5 is no str but bytes"),
            (7, "text 5 is no str but int"),
            ("\ud800", "text 5 holds half a surrogate pair"),
        ],
    )
    def test_are_named_and_harm_nothing(self, pool: ParallelTokenizer, bad: Any, message: str) -> None:
        before = as_lists(pool(TEXTS))
        with pytest.raises(UsageError, match=message):
            pool([*TEXTS[:5], bad, *TEXTS[5:]])
        assert as_lists(pool(TEXTS)) == before

    def test_a_null_in_arrow_text(self, pool: ParallelTokenizer) -> None:
        with pytest.raises(UsageError, match="text 1 is null"):
            pool(pa.array(["a", None, "b"]))

    def test_one_text_instead_of_a_list(self, pool: ParallelTokenizer) -> None:
        with pytest.raises(UsageError, match=r"Give \[text\]"):
            pool("text")

    def test_one_that_the_library_does_not_survive_is_named(self, spec_of: Callable[[str], str]) -> None:
        """A million spaces make tiktoken panic."""
        spec = spec_of("gpt2-ranks")
        with ParallelTokenizer(spec, pattern="gpt2", engine="tiktoken", workers=2) as tokenizer:
            eager(tokenizer)
            with pytest.raises(TokenizerError, match="text 2 cannot be encoded"):
                tokenizer(["a", "b", " " * 1_000_000 + "x", "c"])
            assert as_lists(tokenizer(["a b"])) == [samples.oracle("gpt2-ranks")("a b")]


class TestPool:
    def test_is_made_when_it_pays_and_once(self, spm: Path) -> None:
        with ParallelTokenizer(spm, workers=2) as tokenizer:
            large = ["word " * tokenizer.crossover_bytes] * 2
            pools = []
            for batch in (["a"] * 3, large, large):
                tokenizer(batch)
                pools.append(tokenizer._encoder._home.pool)
            assert pools[0] is None
            assert pools[1] is not None
            assert pools[2] is pools[1]

    def test_is_not_made_for_one_worker(self, spm: Path) -> None:
        with ParallelTokenizer(spm, workers=1) as tokenizer:
            tokenizer(["word " * 100_000] * 4)
            assert tokenizer._encoder._home.pool is None

    def test_closed_is_closed(self, pool: ParallelTokenizer) -> None:
        pool(TEXTS)
        pool.close()
        pool.close()
        with pytest.raises(UsageError, match="closed"):
            pool(TEXTS)

    def test_leaves_no_thread_and_no_process(self, pool: ParallelTokenizer) -> None:
        def running() -> list[Any]:
            threads = [thread for thread in threading.enumerate() if thread.name.startswith("tokpress-encode")]
            return [
                *threads,
                *(child for child in psutil.Process().children() if "tokpress.live" in str(child.cmdline())),
            ]

        before = len(running())
        pool(TEXTS)
        assert len(running()) > before
        pool.close()
        assert len(running()) == before

    def test_is_pickled_as_its_tokenizer(self, pool: ParallelTokenizer) -> None:
        with pickle.loads(pickle.dumps(pool)) as other:
            assert other.workers == 2
            assert as_lists(other(TEXTS)) == as_lists(pool(TEXTS))

    def test_wrong_options_are_refused(self, spm: Path) -> None:
        with pytest.raises(UsageError, match="workers"):
            ParallelTokenizer(spm, workers=0)

    def test_says_it_in_milliseconds(
        self, pool: ParallelTokenizer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ticks = iter([10.0, 10.5])
        monkeypatch.setattr(parallel, "perf_counter", lambda: next(ticks))
        pool.verbose = True
        with caplog.at_level(logging.INFO):
            pool(TEXTS[:8])
        assert caplog.messages == ["Parallel tokenized 8 samples in 500.0 ms (62.5 ms per sample)"]

    def test_says_what_a_call_took(self, pool: ParallelTokenizer, caplog: pytest.LogCaptureFixture) -> None:
        pool.verbose = True
        with caplog.at_level(logging.INFO):
            pool(TEXTS[:8])
        (line,) = caplog.messages
        assert re.fullmatch(r"Parallel tokenized 8 samples in \d+\.\d ms \(\d+\.\d ms per sample\)", line)


class TestFunction:
    def test_gives_the_same(self, spm: Path) -> None:
        with ParallelTokenizer(spm) as tokenizer:
            assert as_lists(tokpress.parallel_tokenize(TEXTS, tokenizer=spm)) == as_lists(tokenizer(TEXTS))
            inputs, targets = zip(
                *tokpress.parallel_tokenize(TEXTS, tokenizer=spm, pairs=True, max_length=5), strict=True
            )
            assert as_lists(list(inputs)) == [row[:-1] for row in as_lists(tokenizer(TEXTS, max_length=6))]
            assert as_lists(list(targets)) == [row[1:] for row in as_lists(tokenizer(TEXTS, max_length=6))]

    def test_keeps_its_pool(self, spm: Path) -> None:
        before = parallel._kept.cache_info()
        for _ in range(3):
            tokpress.parallel_tokenize(["a"], tokenizer=spm, workers=2, bos=True)
        after = parallel._kept.cache_info()
        assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)

    def test_sees_that_a_file_has_changed(self, tmp_path: Path, spec_of: Callable[[str], str]) -> None:
        path = tmp_path / "tokenizer.model"
        for name in ("mistral-v7-real", "sp-unigram-unk-bare-nmt_nfkc"):
            path.write_bytes(samples.sample(name).files.files["tokenizer.model"])
            got = tokpress.parallel_tokenize(["Hello world"], tokenizer=path)
            assert as_lists(got) == [samples.oracle(name)("Hello world")]

    def test_sees_that_a_file_of_the_same_size_has_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "ranks.tiktoken"
        ranks = samples.small_ranks()
        swapped = ranks.replace(b"YQ== ", b"? ").replace(b"Yg== ", b"YQ== ").replace(b"? ", b"Yg== ")  # "a" and "b"
        got = []
        for time, data in enumerate((ranks, swapped)):
            path.write_bytes(data)
            os.utime(path, ns=(time, time))
            got += as_lists(tokpress.parallel_tokenize(["a b"], tokenizer=path, pattern="gpt2"))
        assert len(ranks) == len(swapped)
        assert got[0] != got[1]


FORK = """
import os, sys
import pyarrow as pa
from tokpress import ParallelTokenizer
from tokpress.live.costs import Costs
tokenizer = ParallelTokenizer(sys.argv[1], workers=2)
tokenizer._encoder.costs = Costs(call=0.0, byte=1.0, handover=1e-4)
texts = [f"text {i} " * i for i in range(20)]
tokenizer.engine.encode(pa.array(texts, "large_string"), threads=2)  # the library's own threads do not survive a fork
expected = [row.tolist() for row in tokenizer(texts)]
for exit in (os._exit, sys.exit):
    child = os.fork()
    if not child:
        exit(0 if [row.tolist() for row in tokenizer(texts)] == expected else 1)
    assert os.waitpid(child, 0)[1] == 0, exit
idle = os.fork()
if not idle:
    sys.exit(0)  # without having used it
assert os.waitpid(idle, 0)[1] == 0
assert [row.tolist() for row in tokenizer(texts)] == expected
"""

LOADER = """
import sys, threading
from torch.utils.data import DataLoader
from tokpress import ParallelTokenizer
from tokpress.live.costs import Costs
spec, start = sys.argv[1:]

class Texts:
    def __init__(self):
        self.tokenizer = ParallelTokenizer(spec, workers=2)
    def __len__(self):
        return 12
    def __getitem__(self, i):
        self.tokenizer._encoder.costs = Costs(call=0.0, byte=1.0, handover=1e-4)
        return [row.tolist() for row in self.tokenizer([f"text {i} " * k for k in range(6)])]

if __name__ == "__main__":
    data = Texts()
    expected = [data[i] for i in range(12)]
    workers = 2 if start == "fork" else 1  # a spawned one imports torch again
    loader = DataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context=start)
    assert list(loader) == expected
    for thread in threading.enumerate():  # of multiprocessing: one that is cut off at the end leaves a semaphore behind
        if thread.name.startswith("QueueFeeder"):
            thread.join()
"""

EXIT = """
import os, sys
from tokpress import ParallelTokenizer
from tokpress.live.costs import Costs

tokenizer = ParallelTokenizer(sys.argv[1], workers=2)
tokenizer._encoder.costs = Costs(call=0.0, byte=1.0, handover=1e-4)
tokenizer(["a", "b", "c"])
how = sys.argv[2]
if how == "forget":
    del tokenizer
elif how == "raise":
    raise SystemExit(3)
elif how == "kill":
    os.kill(os.getpid(), 9)
"""


class TestProcesses:
    @pytest.mark.parametrize("name", ["mistral-v1-real", "cl100k"])
    def test_a_fork_makes_its_own_pool(self, spec_of: Callable[[str], str], run_script: RunScript, name: str) -> None:
        assert run_script(FORK, spec_of(name)) == (0, "", "")

    @pytest.mark.parametrize("start", ["fork", "spawn"])
    def test_works_in_the_workers_of_a_data_loader(self, spm: Path, run_script: RunScript, start: str) -> None:
        assert run_script(LOADER, spm, start) == (0, "", "")

    @pytest.mark.parametrize(("how", "code"), [("return", 0), ("forget", 0), ("raise", 3), ("kill", -9)])
    def test_an_interpreter_that_ends_says_nothing(self, spm: Path, run_script: RunScript, how: str, code: int) -> None:
        assert run_script(EXIT, spm, how) == (code, "", "")
