"""Killed before, or refused, any system call that changes the disk: what is left is honest, and the next run completes it.

strace injects: a kill before the Nth call of a kind, or an error in its place. `make crash` goes through all of them, the
ordinary tests through a seeded choice.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from crash.building import check_honest, command, contents, finish, start, write_corpus

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace (Debian package strace)")

KINDS = ["write", "fsync", "rename", "mkdir", "unlink", "ftruncate"]
INJECTIONS = ["signal=KILL", "error=EIO", "error=ENOSPC"]
EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
SMALL = ["--workers", "1", "--shard-size", "40kB"]


def calls_of_a_run() -> Counter[str]:
    """How often a run makes each call, in the thread that makes it most often: strace counts each thread by itself."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = write_corpus(Path(scratch) / "in", 1)[:1]
        log = Path(scratch) / "log"
        trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(KINDS)}"]
        subprocess.run([*trace, *command(corpus, Path(scratch) / "store", *SMALL)], capture_output=True, check=True)
        made = Counter(tuple(line.split("(")[0].split()[:2]) for line in log.read_text().splitlines() if "(" in line)
    return Counter({kind: max((n for (_, call), n in made.items() if call == kind), default=0) for kind in KINDS})


def cases() -> list[tuple[str, str, int]]:
    if shutil.which("strace") is None:
        return []
    calls = calls_of_a_run()
    every = [(kind, how, n) for kind in KINDS for how in INJECTIONS for n in range(1, calls[kind] + 1)]
    return every if EVERYTHING else random.Random(7).sample(every, 12)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(tmp_path_factory.mktemp("crash") / "in", 1)[:1]


@pytest.fixture(scope="module")
def expected(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("crash") / "uninterrupted"
    code, errors = finish(start(corpus, out, *SMALL))
    assert code == 0, errors
    return contents(out)


@pytest.mark.parametrize(("kind", "how", "n"), cases())
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
