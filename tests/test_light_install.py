"""`make demo` installs the core alone, and says how far it is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import light_install  # noqa: E402

PIP = """\
Looking in indexes: https://pypi.org/simple
Obtaining file:///work
  Installing build dependencies: started
  Getting requirements to build editable: finished with status 'done'
Collecting click>=8.1
  Downloading click-8.5.1-py3-none-any.whl.metadata (2.6 kB)
  Using cached numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)
Downloading click-8.5.1-py3-none-any.whl (126 kB)
Building wheels for collected packages: tokpress
Installing collected packages: click, numpy, tokpress
Successfully installed click-8.5.1 numpy-2.3.5 tokpress-0.1.0
"""


def test_what_pip_says_becomes_phases() -> None:
    assert list(light_install.phases(PIP.splitlines())) == [
        ("download", "1 packages, numpy (16.9 MB)"),
        ("download", "2 packages, click (126 kB)"),
        ("install", "3 packages"),
    ]


def test_the_demo_installs_no_extra_and_compiles_nothing() -> None:
    planned = subprocess.check_output(
        ["make", "--dry-run", "--always-make", "--no-print-directory", "demo"], cwd=ROOT, text=True
    )
    assert "[dev]" not in planned
    assert "native" not in planned
    assert ".venv-demo/bin/tokpress demo" in planned
    assert "tools/light_install.py .venv-demo" in planned


def test_the_oldest_python_is_the_project_s() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert required == f">={'.'.join(map(str, light_install.OLDEST))}"


def test_an_old_python_is_told_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert light_install.main(str(tmp_path / "env")) == 1
    assert re.search(r"needs Python 3\.11 or newer; this is 3\.9\.2\. Try: make demo PYTHON=", capsys.readouterr().out)
    assert not (tmp_path / "env").exists()


def test_a_pip_that_fails_is_quoted_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Broken:
        def __init__(self, **_: object) -> None: ...

        def create(self, target: Path) -> None:
            (target / "bin").mkdir(parents=True)
            python = target / "bin" / "python"
            python.write_text("#!/bin/sh\necho 'ERROR: Could not find a version of numpy'\nexit 1\n")
            python.chmod(0o755)

    monkeypatch.setattr(venv, "EnvBuilder", Broken)
    assert light_install.main(str(tmp_path / "env")) == 1
    said = capsys.readouterr().out
    assert "ERROR: Could not find a version of numpy" in said
    assert "run `make demo` again" in said
