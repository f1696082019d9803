"""Killed before, or refused, any system call that changes the disk: what is left is honest, and the next run completes it.

strace injects: a kill before the Nth call of a kind, or an error in its place. `make crash` goes through all of them, the
ordinary tests through a seeded choice.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from crash.building import check_honest, command, contents, finish, start, write_corpus

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace (Debian package strace)")

# How often a small run makes each call, in the thread that makes it most often: strace counts each thread by itself.
CALLS = {"write": 85, "fsync": 9, "renameat": 5, "mkdir": 2, "mkdirat": 6, "unlink": 2, "unlinkat": 1, "ftruncate": 1}
INJECTIONS = ["signal=KILL", "error=EIO", "error=ENOSPC"]
EVERYTHING = os.environ.get("TOKPRESS_CRASH_EVERYTHING") == "1"
SMALL = ["--workers", "1", "--shard-size", "40kB"]
CASES = [(kind, how, n) for kind, most in CALLS.items() for how in INJECTIONS for n in range(1, most + 1)]
CHOSEN = CASES if EVERYTHING else random.Random(7).sample(CASES, 12)
ENVIRONMENT = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # what Python caches for itself is not looked at


def inside(build: list[str]) -> list[str]:
    """The build in one process: strace would kill one worker after the other at the same call, and the scheduler then
    suspects the document."""
    python, _, _, *arguments = build
    code = (
        "import sys; from tokpress.run import coordinator; coordinator.INSIDE_BYTES = 10**9\n"
        "from tokpress.cli import main; sys.argv[0] = 'tokpress'; main()"
    )
    return [python, "-c", code, *arguments]


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
    run = [*inject, *inside(command(corpus, out, *SMALL))]
    subprocess.run(run, capture_output=True, timeout=120, check=False, env=ENVIRONMENT)
    if out.exists():
        check_honest(out)
    code, errors = finish(start(corpus, out, *SMALL))
    assert code == 0, errors
    assert contents(out) == expected
    check_honest(out)


def test_no_call_is_left_out(corpus: list[Path], tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}"]
    run = [*trace, *inside(command(corpus, tmp_path / "store", *SMALL))]
    subprocess.run(run, capture_output=True, timeout=120, check=True, env=ENVIRONMENT)
    made = Counter(tuple(line.split("(")[0].split()[:2]) for line in log.read_text().splitlines() if "(" in line)
    for kind, most in CALLS.items():
        assert max(n for (_, call), n in made.items() if call == kind) <= most, kind
