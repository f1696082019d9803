"""README's commands as a new user runs them: a clone, an empty home, empty caches, no compiler; each timed.

In: this repository, as it is committed. Out: a table with seconds and megabytes. It needs a network, or a mirror of PyPI.

    python3 tools/fresh_user.py
    python3 tools/fresh_user.py --python python3.12
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "cl", "rustc", "cargo", "ninja", "cmake")
MAKE_INPUTS = """
import json, pathlib, pydoc_data.topics, zstandard
lines = "".join(json.dumps({"text": text}) + "\\n" for text in pydoc_data.topics.topics.values())
pathlib.Path("data").mkdir()
pathlib.Path("data/a.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokpress-fresh-") as name:
        work = Path(name)
        (work / "home").mkdir()
        kept = {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("PIP_", "SSL_", "HTTP", "LANG", "no_proxy"))
        }
        path = _without_compilers(work / "bin")
        environment = {**kept, "HOME": str(work / "home"), "PATH": f"{work / 'env' / 'bin'}:{path}"}
        clone = work / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        steps = {
            "make an environment": f"{given.python} -m venv {work / 'env'}",
            "pip install .": "pip install --quiet .",
            "text to try it on": f"{work / 'env' / 'bin' / 'python'} -c '{MAKE_INPUTS}'",
            "tokpress train-tokenizer": "tokpress train-tokenizer 'data/*.jsonl.zst' --vocab-size 4096 --out tokenizer.json",
            "tokpress build": "tokpress build 'data/*.jsonl.zst' --tokenizer tokenizer.json --out tokens",
            "tokpress verify": "tokpress verify tokens --deep",
            "make demo": f"make demo PYTHON={given.python}",
            "make demo, again": f"make demo PYTHON={given.python}",
        }
        print(subprocess.check_output([given.python, "--version"], text=True, env=environment).strip())
        for step, command in steps.items():
            began = monotonic()
            done = subprocess.run(
                command, shell=True, cwd=clone, env=environment, text=True, capture_output=True, check=False
            )
            if done.returncode:
                print(f"{step} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
                return 1
            told = [line for line in done.stdout.splitlines() if line.startswith(("installed:", "demo:"))]
            print(f"{monotonic() - began:6.1f} s  {step}  {' · '.join(told)}", flush=True)
        for place in ("env", "clone/.venv-demo"):
            size = subprocess.check_output(["du", "-sm", str(work / place)], text=True).split()[0]
            print(f"{size:>6} MB {place}")
    return 0


def _without_compilers(directory: Path) -> Path:
    """All commands that there are, but no compiler."""
    directory.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for command in Path(place).iterdir() if Path(place).is_dir() else []:
            base = command.name.rpartition("-")[2] if command.name[-1:].isdigit() else command.name
            link = directory / command.name
            if command.name in COMPILERS or any(command.name.endswith(f"-{c}") for c in COMPILERS) or base in COMPILERS:
                continue
            if not link.is_symlink():
                link.symlink_to(command)
    for compiler in COMPILERS:
        assert shutil.which(compiler, path=str(directory)) is None
    return directory


if __name__ == "__main__":
    sys.exit(main())
