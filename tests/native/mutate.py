"""Do the tests notice? Takes rules out of copies of the native encoder, one at a time, and runs the tests that must fail.

In: `mutations.toml`. Out: a line for each mutation; the exit code says whether one survived.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
_FAILED = 1  # pytest's exit code


class Mutation(TypedDict):
    file: str  # under native/src
    old: str  # stands there exactly once
    new: str
    effect: str
    tests: str


def mutations() -> list[Mutation]:
    table = tomllib.loads(Path(__file__).with_name("mutations.toml").read_text("utf-8"))
    return list(table["mutation"])


def mutated(mutation: Mutation) -> str:
    source = (ROOT / "native/src" / mutation["file"]).read_text("utf-8")
    if source.count(mutation["old"]) != 1:
        raise ValueError(f"{mutation['file']} does not have one place that reads {mutation['old']!r}")
    return source.replace(mutation["old"], mutation["new"])


def main() -> None:
    survived = 0
    with tempfile.TemporaryDirectory(prefix="tokpress-native-") as directory:
        copy, build, package = (Path(directory) / name for name in ("native", "build", "package"))
        shutil.copytree(ROOT / "native", copy, ignore=shutil.ignore_patterns("build"))
        shutil.copytree(ROOT / "native/tokpress_native", package / "tokpress_native")
        settings = ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"]
        configure = ["cmake", "-S", str(copy), "-B", str(build), *settings]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        if test(build, package, "not Mistral"):
            sys.exit("the tests fail as it is")
        for mutation in mutations():
            place = copy / "src" / mutation["file"]
            original = place.read_text("utf-8")
            place.write_text(mutated(mutation), "utf-8")
            outcome = test(build, package, mutation["tests"])
            place.write_text(original, "utf-8")
            survived += outcome != _FAILED
            print(f"{'killed' if outcome == _FAILED else 'SURVIVED'}  {mutation['effect']}", flush=True)
    sys.exit(survived > 0)


def test(build: Path, package: Path, chosen: str) -> int:
    subprocess.run(["cmake", "--build", build, "--parallel"], check=True, stdout=subprocess.DEVNULL)
    for library in build.glob("_native*.so"):
        shutil.copy(library, package / "tokpress_native")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/native", "-k", chosen]
    environment = {name: value for name, value in os.environ.items() if name != "TOKPRESS_NATIVE_WHOLE"}
    done = subprocess.run(command, cwd=ROOT, env=environment | {"PYTHONPATH": str(package)}, stdout=subprocess.DEVNULL)
    return done.returncode


if __name__ == "__main__":
    main()
