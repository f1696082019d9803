"""The core install in an environment of its own, for `make demo`: no test tools, no torch, no compiler.

In: a directory that is to be the environment. Out: that environment with this checkout in it, one line that shows how far
pip is (at a terminal it is rewritten, elsewhere it is one line a phase), and a last line with the time and the size.

    python3 tools/light_install.py .venv-demo
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
_FETCHED = re.compile(r"\s*(?:Downloading|Using cached) ([^-\s]+)-\S+\.whl( \(.*\))?\s*$")  # not its metadata alone


def phases(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What pip says -> (phase, what to show). Lines that say nothing to a user are left out."""
    fetched = 0
    for line in lines:
        if match := _FETCHED.match(line):
            fetched += 1
            package = Path(match[1]).name
            yield "download", f"{fetched} packages, {package}{match[2] or ''}"
        elif line.startswith("Installing collected packages:"):
            count = line.count(",") + 1
            yield "install", f"{count} packages"


def main(directory: str) -> int:
    if sys.version_info < OLDEST:
        found, oldest = ".".join(map(str, sys.version_info[:3])), ".".join(map(str, OLDEST))
        print(f"tokpress needs Python {oldest} or newer; this is {found}. Try: make demo PYTHON=python3.12")
        return 1
    began = monotonic()
    _show("making the environment", began)
    target = Path(directory)
    venv.EnvBuilder(clear=True, with_pip=True).create(target)
    command = [str(target / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    command += ["--progress-bar", "off", "--constraint", str(ROOT / "constraints.txt"), "--editable", str(ROOT)]
    said: list[str] = []
    unpacking = monotonic()
    shown = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        _show("asking for packages", began)
        for phase, text in phases(_kept(pip.stdout, said)):
            unpacking = monotonic()
            if sys.stdout.isatty() or phase != shown:
                _show(f"{phase}: {text}", began)
            shown = phase
    if pip.returncode:
        print(f"\npip failed ({pip.returncode}). Its last words:\n{''.join(said[-15:])}")
        print("Mend that and run `make demo` again. If it was the network: pip's settings are in `pip config list`.")
        return 1
    ended = monotonic()
    size = sum(path.lstat().st_size for path in target.rglob("*")) / 1e6
    print(
        f"{_clear()}installed: {size:,.0f} MB in {directory}, {ended - began:.1f} s, "
        f"{ended - unpacking:.1f} s of it after the last download"
    )
    return 0


def _kept(lines: Iterable[str], said: list[str]) -> Iterator[str]:
    for line in lines:
        said.append(line)
        yield line


def _show(text: str, began: float) -> None:
    end = "" if sys.stdout.isatty() else "\n"
    print(f"{_clear()}installing, {monotonic() - began:.0f} s: {text}"[:100], end=end, flush=True)


def _clear() -> str:
    return "\r\x1b[K" if sys.stdout.isatty() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
