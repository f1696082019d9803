"""Killed before, or refused, any system call that changes the disk: what is left is honest, and the next run completes it.

strace injects: a kill before the Nth call of a kind, or an error in its place. `make crash` goes through all of them, the
ordinary tests through a seeded choice.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from crash.building import check_honest, command, contents, finish, start, write_corpus

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace (Debian package strace)")

KINDS = ["write", "fsync", "rename", "mkdir", "unlink", "ftruncate"]
INJECTIONS = ["signal=KILL", "error=EIO", "error=ENOSPC"]
MOST_CALLS = 80  # of a kind in one thread of this small run; later ones change nothing
EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
CASES = [(kind, how, n) for kind in KINDS for how in INJECTIONS for n in range(1, MOST_CALLS + 1)]
CHOSEN = CASES if EVERYTHING else random.Random(7).sample([case for case in CASES if case[2] <= 20], 12)
SMALL = ["--workers", "1", "--shard-size", "40kB"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("crash") / "in", 1)[:1]


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("crash") / "uninterrupted"
    code, errors = finish(start(corpus, out, *SMALL))
    assert code == 0, errors
    return contents(out)


@pytest.mark.parametrize(("kind", "how", "n"), CHOSEN)
def test_a_call_that_fails(
    kind: str, how: str, n: int, corpus: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "store"
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kind}", "-e", f"inject={kind}:{how}:when={n}"]
    subprocess.run([*inject, *command(corpus, out, *SMALL)], capture_output=True, timeout=120, check=False)
    if out.exists():
        check_honest(out)
    code, errors = finish(start(corpus, out, *SMALL))
    assert code == 0, errors
    assert contents(out) == expected
    check_honest(out)
