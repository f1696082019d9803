"""What a thread keeps is bounded, whatever it is given: `worker_bytes`, and little beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokpress_native", reason="the native encoder is not built: no C++ compiler")

TESTS = Path(__file__).parents[1]
PROGRAM = """
import random, resource, sys
import numpy as np
import tokpress_native
from engines.models import RESERVED, write_model
from tokpress.engines.model_proto import NORMAL

letters = "abcdefghijklmnopqrstuvwxyz"
pieces = [*RESERVED, *((letter, -5.0, NORMAL) for letter in letters), ("\\u2581", -3.0, NORMAL)]
pieces += [(a + b, -7.0, NORMAL) for a in letters for b in letters]
tokenizer = tokpress_native.Tokenizer(write_model(pieces, model_type=int(sys.argv[1]), byte_fallback=False))
rng = np.random.default_rng(0)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def words(size: int) -> str:  # none twice: nothing that is kept is ever used
    text = rng.integers(97, 123, size, np.uint8)
    text[rng.random(size) < 0.08] = 32
    return text.tobytes().decode()


tokenizer.encode([words(1000)])
before = peak()
for _ in range(30):
    tokenizer.encode([words(500_000)])
print(peak() - before - tokenizer.worker_bytes)
"""


@pytest.mark.parametrize("kind", [1, 2])
def test_words_that_never_come_back_take_no_more_than_the_cache(kind: int) -> None:
    """15 MB of them, in a process of its own: beyond the cache there is what one call returns, and its scratch memory."""
    command = [sys.executable, "-c", PROGRAM, str(kind)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24 << 20
