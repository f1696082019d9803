"""Fuzzing the native encoder under ASan and UBSan: loading and encoding, so many seconds each.

In: `native/fuzz`. Out: nothing, or the exit code and report of the target that failed. With clang it is libFuzzer; where
there is only gcc, a driver of ours changes seeds at random, which is said.

    python tests/native/fuzzing.py --seconds 3600
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from engines.fuzz import fuzzed  # noqa: E402
from engines.models import BYTES, RESERVED, characters, normal, write_model  # noqa: E402

from native.variants import FEW, near_tied, variant  # noqa: E402

SOURCES = [
    path for path in sorted((ROOT / "native/src").glob("*.cpp")) if path.name not in ("bindings.cpp", "tokenizer.cpp")
]
FLAGS = ["-std=c++17", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-ffp-contract=off"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=ROOT / "native/build/fuzz")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    clang = next(
        filter(None, map(shutil.which, ("clang++", *(f"clang++-{version}" for version in range(22, 12, -1))))), None
    )
    if clang is None:
        print("no clang++: a driver of ours changes seeds at random, under gcc's sanitizers", flush=True)
    write_seeds(options.out)
    for target in ("load", "encode"):
        program = build(target, clang, options.out)
        print(f"{target}, {options.seconds} s", flush=True)
        run(program, target, clang is not None, options.out, options.seconds)


def build(target: str, clang: str | None, out: Path) -> Path:
    program = out / target
    sources = [ROOT / f"native/fuzz/{target}.cpp", *([] if clang else [ROOT / "native/fuzz/driver.cpp"]), *SOURCES]
    sanitize = "-fsanitize=address,undefined" + (",fuzzer" if clang else "")
    subprocess.run([clang or "g++", *FLAGS, sanitize, *map(str, sources), "-o", str(program)], check=True)
    return program


def write_seeds(out: Path) -> None:
    """Small models, so that many are tried; and texts, each with a byte that chooses a model."""
    tiny = normal("ab", "▁a", "abc", "é漢")
    models = {name: variant(name) for name in FEW} | {
        "tiny-bpe": write_model([*RESERVED, *tiny, *characters("abcé")], byte_fallback=False),
        "tiny-unigram": write_model([*RESERVED, *tiny, *characters("abcé")], model_type=1, byte_fallback=False),
        "bytes": write_model([*RESERVED, *BYTES, *tiny]),
        "near-tied": near_tied(0),
    }
    for kind in ("models", "load", "encode"):
        shutil.rmtree(out / "seeds" / kind, ignore_errors=True)
        (out / "seeds" / kind).mkdir(parents=True)
    for name, model in models.items():
        (out / "seeds/models" / name).write_bytes(model)
        if len(model) < 20_000 or name == FEW[0]:
            (out / "seeds/load" / name).write_bytes(model)
    for i, text in enumerate(fuzzed(0, 400)):
        (out / "seeds/encode" / str(i)).write_bytes(bytes([i % 256]) + text.encode())


def run(program: Path, target: str, libfuzzer: bool, out: Path, seconds: int) -> None:
    seeds = out / "seeds" / target
    found = out / f"found-{target}"
    found.mkdir(exist_ok=True)
    environment = os.environ | {
        "TOKPRESS_FUZZ_MODELS": str(out / "seeds/models"),
        "ASAN_OPTIONS": "detect_leaks=1",
    }
    most = 300_000 if target == "load" else 20_000
    command = (
        [program, found, seeds, f"-max_total_time={seconds}", f"-max_len={most}", "-timeout=600", "-rss_limit_mb=4096"]
        if libfuzzer
        else [program, str(seconds), seeds]
    )
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, cwd=out)
    print("\n".join(done.stderr.splitlines()[-3:]) + done.stdout, flush=True)
    if done.returncode:
        sys.exit(f"{target} failed:\n{done.stderr[-10_000:]}")


if __name__ == "__main__":
    main()
