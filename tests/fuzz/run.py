"""Fuzzes all targets, or those that are named, each in a process of its own and for its part of the time.

    python tests/fuzz/run.py                                an hour
    python tests/fuzz/run.py --seconds 60 jsonl template
    python tests/fuzz/run.py --seconds 60 --count 6 --seed 3    some of them, chosen by the seed

In: the targets and their seeds. Out: a line for each; what it crashed on stands in `fuzz-found/TARGET/`, and belongs into
`tests/fuzz/seeds/TARGET/` once it is mended. Needs atheris: pip install 'tokpress[fuzz]'.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--count", type=int, help="so many of the targets, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _fuzz(given.one, given.seconds)
        return
    from fuzz.targets import TARGETS

    names = given.targets or list(TARGETS)
    if given.count is not None:
        names = random.Random(given.seed).sample(names, min(given.count, len(names)))
    failed = []
    for name in names:
        run = [sys.executable, __file__, "--one", name, "--seconds", str(max(given.seconds // len(names), 1))]
        code = subprocess.run(run, check=False).returncode
        print(f"{name}: {'clean' if code == 0 else f'FAILED ({code})'}", flush=True)
        failed += [name] if code else []
    sys.exit(1 if failed else 0)


def _fuzz(name: str, seconds: int) -> None:
    atheris: Any = import_module("atheris")

    with atheris.instrument_imports(include=["tokpress"]):
        from fuzz import targets
    target = targets.TARGETS[name]
    found = Path("fuzz-found") / name
    found.mkdir(parents=True, exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix="tokpress-corpus-"))
    for number, data in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        "-timeout=60",
        "-rss_limit_mb=4000",
        "-verbosity=0",
        "-print_final_stats=0",
    ]
    atheris.Setup(["fuzz", *options, f"-artifact_prefix={found}/", str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
