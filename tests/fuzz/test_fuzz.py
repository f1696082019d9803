"""Every target, on a seeded selection of changed bytes; `make fuzz` has a fuzzer look for more.

What a fuzzer found stands in `seeds/TARGET/`, and is tried each time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import targets
from fuzz.mutate import mutated

ROUNDS = int(os.environ.get("TOKPRESS_FUZZ_ROUNDS", "25"))
SEED = int(os.environ.get("TOKPRESS_FUZZ_SEED", "0"))
SEEDS = Path(__file__).parent / "seeds"


@pytest.fixture(scope="module", autouse=True)
def scratch() -> Iterator[None]:
    yield
    targets.close()


@pytest.mark.parametrize("name", targets.TARGETS)
def test_nothing_but_errors_of_ours(name: str) -> None:
    target = targets.TARGETS[name]
    rng = random.Random(f"{name} {SEED}")
    seeds = target.seeds()
    for data in seeds:
        target.run(data)
    for _ in range(ROUNDS):
        data = mutated(rng.choice(seeds), rng)
        try:
            target.run(data)
        except BaseException as error:
            error.add_note(f"{name} was given {data!r}")
            raise


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_stays_mended(path: Path) -> None:
    targets.TARGETS[path.parent.name].run(path.read_bytes())
