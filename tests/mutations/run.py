"""Do the tests notice? Applies single-point mutations to copies of the package and runs the tests that must fail.

In: the tables beside this file (`*.toml`): a place, the text that stands there, what is put in its place, and the tests that
must notice. Out: a line for each mutation and the number that survived, which is the exit code's business too.

    python tests/mutations/run.py                    all of them
    python tests/mutations/run.py --only packing     those whose file or effect says so
    python tests/mutations/run.py --count 10 --seed 3

A mutation counts as killed when one of its tests fails; tests that cannot even be collected prove nothing, nor do those that
fail without it: all of them are run once on the package as it is, before anything is changed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/tokpress")
_SECONDS = 120  # for one test: a mutation may make it hang
KILLED, SURVIVED = 1, 0  # pytest's exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    file: str  # under src/tokpress
    old: str  # stands there exactly once
    new: str
    effect: str  # what a user would suffer
    tests: tuple[str, ...]  # as pytest takes them, below tests/

    @property
    def name(self) -> str:
        return f"{self.file}: {self.effect}"

    def apply(self, source: str) -> str:
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} has {source.count(self.old)} places that read {self.old!r}, not one")
        return source.replace(self.old, self.new)


def mutations() -> list[Mutation]:
    return [
        Mutation(**(entry | {"tests": tuple(entry["tests"])}))
        for table in sorted(Path(__file__).parent.glob("*.toml"))
        for entry in tomllib.loads(table.read_text("utf-8"))["mutation"]
    ]


def outcome(mutation: Mutation) -> str:
    """'killed', 'survived', or what else became of it."""
    with tempfile.TemporaryDirectory(prefix="tokpress-mutation-") as directory:
        mutated = Path(directory) / "src"
        shutil.copytree(ROOT / "src", mutated, ignore=shutil.ignore_patterns("__pycache__"))
        place = mutated / "tokpress" / mutation.file
        place.write_text(mutation.apply(place.read_text("utf-8")), "utf-8")
        done = run_tests(mutation.tests, mutated, Path(directory), "-x")
    if done.returncode == KILLED:
        return "killed"
    return "survived" if done.returncode == SURVIVED else f"not run: {done.stdout.strip().splitlines()[-1:]}"


def failures(chosen: Sequence[Mutation]) -> str:
    """What their tests say of the package as it is; nothing, if they pass."""
    with tempfile.TemporaryDirectory(prefix="tokpress-mutation-") as directory:
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        done = run_tests(tests, ROOT / "src", Path(directory), "--tb=short")
    return "" if done.returncode == SURVIVED else done.stdout


def run_tests(tests: Sequence[str], source: Path, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={_SECONDS}", *options]
    environment = {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{directory}/hypothesis",  # one run's examples are not the next one's
    }
    return subprocess.run(
        [*command, f"--basetemp={directory}/pytest", *(f"tests/{test}" for test in tests)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutations whose file or effect holds this text")
    parser.add_argument("--count", type=int, help="so many of them, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    chosen = [mutation for mutation in mutations() if options.only in mutation.name]
    if options.count is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    if chosen and (failed := failures(chosen)):
        print(f"{failed}\nThese tests fail without any mutation: they would prove nothing.")
        return 1
    alive = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutation, became in zip(chosen, pool.map(outcome, chosen), strict=True):
            print(f"{became:9} {mutation.name}", flush=True)
            alive += became != "killed"
    print(f"{len(chosen) - alive} of {len(chosen)} mutations were killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
