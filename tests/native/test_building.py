"""A machine without a C++ compiler does without the native encoder, and says so in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_without_a_compiler_nothing_is_built_and_a_line_says_so() -> None:
    command = ["make", "--old-file", ".venv/.ready", "native", "CXX=no-such-compiler"]
    quiet = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "native encoder: not built, there is no C++ compiler (no-such-compiler); SentencePiece models are encoded without it"
    ]
