"""Tokenizers as files, and a way to make every batch go through the pool, however small it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from engines.conftest import write_files
from engines.samples import package_file

from tokpress import ParallelTokenizer
from tokpress.live.costs import Costs

RunScript = Callable[..., tuple[int, str, str]]  # exit code, standard output, standard error
TEXTS = [f"Sample {i}: " + "the quick brown fox, naïve 日本 🙂\n" * (i % 7) for i in range(40)] + ["", " ", "x" * 500]


@pytest.fixture(scope="session")
def spm() -> Path:
    """A real SentencePiece model of 32,000 pieces."""
    return package_file("mistral_common", "data/tokenizer.model.v1")


@pytest.fixture(scope="session")
def spec_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Sample tokenizers of the engines' tests, as paths."""

    def spec(name: str) -> str:
        if name == "bytes":
            return name
        directory = write_files(tmp_path_factory.mktemp(name), name)
        ranks = directory / "ranks.tiktoken"
        return str(ranks if ranks.is_file() else directory)

    return spec


def eager(tokenizer: ParallelTokenizer) -> ParallelTokenizer:
    """As if handing over cost nothing: each text is a part of its own."""
    tokenizer._encoder.costs = Costs(call=0.0, byte=1.0, handover=0.0001)
    return tokenizer


@pytest.fixture
def pool(spm: Path) -> Iterator[ParallelTokenizer]:
    with ParallelTokenizer(spm, workers=2) as tokenizer:
        yield eager(tokenizer)


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Runs code in an interpreter of its own. A hang fails with the stacks of all its threads."""

    def run(code: str, *arguments: object) -> tuple[int, str, str]:
        script = tmp_path / "script.py"  # a file: processes that it spawns import it again
        script.write_text(code)
        command = [sys.executable, "-W", "error", "-X", "faulthandler", str(script), *map(str, arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, **pipes, start_new_session=True)
        try:
            out, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGABRT)  # its forks, too
            raise AssertionError(process.communicate(timeout=10)[1]) from None
        return process.returncode, out, errors

    return run
